#include <fmt/format.h>

#include "doctor/load.h"
#include "doctor/rules/rules.h"
#include "moetax/base/units.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const JobFacts& job = facts.job;
  if (!job.ep || job.phase == Phase::kInference || job.settings.find({"moe_expert_capacity_factor"})) return;
  for (const LoadFacts& load : facts.all_loads()) {
    const auto balance = rank_balance(load, job.ep->value);
    if (!balance || balance->worst < 2.5) continue;
    Finding& f = out.add(rule, fmt::format("rank {} receives {:.1f}x the mean in layer {}", balance->worst_rank,
                                           balance->worst, balance->worst_layer));
    f.cause = "dropless dispatch keeps every row; its memory follows the hottest rank.";
    f.evidence = {{load.file, 0,
                   fmt::format("layer {}: {:.0f} of {:.0f} rows", balance->worst_layer, balance->worst_rows,
                               balance->layer_rows)},
                  job.ep->at};
    const auto step = step_traffic(facts, 1);
    if (step && facts.model->inter > 0) {
      // Rows in and out, and the two inner products kept for the backward pass.
      const double row =
          (2.0 * static_cast<double>(facts.model->hidden) + 3.0 * static_cast<double>(facts.model->inter)) * kBf16Bytes;
      const double mean = step->tokens * facts.model->topk * row * step->layers;
      f.cost.bytes = mean * (balance->worst - 1);
      f.cost.text = fmt::format("up to {} more activations than a rank of mean load ({})",
                                units::bytes_text(*f.cost.bytes), units::bytes_text(mean));
    } else {
      f.cost = cannot_price("micro-batch, sequence length and the model's config.json");
    }
    f.fix = "--moe-expert-capacity-factor 2.0 for the first steps, or --recompute-modules moe";
    f.confidence = Confidence::kLikely;
  }
}

}  // namespace

const Rule kHotRankMemory = {
    .id = "hot-rank-memory",
    .severity = Severity::kWarning,
    .title = "dropless dispatch with a rank that receives many times the mean",
    .explanation =
        "Without dropping, a rank has to hold whatever arrives. Early in training routing is uneven, and one "
        "rank may receive three and more times the mean: activations of that rank grow with it, and it runs "
        "out of memory while the others are half empty. Dropping at the router, recomputation or more tensor "
        "parallelism for the first steps avoid it.",
    .source = "public report DeepEP 99",
    .check = check,
};

}  // namespace moetax::doctor
