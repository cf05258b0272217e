#include <fmt/format.h>

#include "doctor/rules/rules.h"
#include "moetax/base/units.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const JobFacts& job = facts.job;
  const auto nodes = job.ep_nodes();
  const double gbs = facts.node_gbs();
  if (!nodes || *nodes < 2 || gbs <= 0 || !facts.gpu || facts.gpu->value.bf16_tflops <= 0) return;
  const auto step = step_traffic(facts, *nodes);
  if (!step || !facts.model || facts.model->active_elements <= 0) return;
  const double wire_us = step->bytes / (gbs * 1e3);
  const double passes = job.phase == Phase::kInference ? 2 : 6;
  const double share_of_model = job.pp ? 1.0 / job.pp->value : 1.0;
  const double compute_us = passes * facts.model->active_elements * share_of_model * step->tokens /
                            (0.4 * facts.gpu->value.bf16_tflops * 1e6);
  if (compute_us <= 0 || wire_us < 0.5 * compute_us) return;
  Finding& f =
      out.add(rule, fmt::format("the exchange between nodes takes {:.1f}x the computation", wire_us / compute_us));
  f.cause = fmt::format(
      "{} a rank and micro-batch at {:.3g} GB/s are {}; the computation takes about {} at 40 % of the {}'s peak.",
      units::bytes_text(step->bytes), gbs, units::time_text(wire_us), units::time_text(compute_us),
      facts.gpu->value.name);
  f.evidence = {job.ep->at, facts.gpu->at, facts.model->at};
  f.cost.us = std::max(0.0, wire_us - compute_us);
  f.cost.bytes = step->bytes;
  f.cost.share = wire_us / (wire_us + compute_us);
  f.cost.text = fmt::format("{:.0f} % of a step without overlap; {} even if all of it is hidden that can be",
                            100 * *f.cost.share, units::time_text(*f.cost.us));
  f.fix = fmt::format(
      "EP inside a node (EP {}) with more pipeline stages, or FP8 dispatch and one copy of a token per node",
      job.gpus_per_node->value);
  f.confidence = Confidence::kLikely;
}

}  // namespace

const Rule kExchangeDominates = {
    .id = "exchange-dominates",
    .severity = Severity::kWarning,
    .title = "an exchange that takes longer than the computation it serves",
    .explanation =
        "Bytes of the exchange grow with the tokens as computation does, so the ratio of the two is a "
        "property of model, grouping and link, not of the batch. Time of the bytes at the link's rate, "
        "against the model's FLOPs at 40 % of the GPU's peak: above a half, overlap cannot hide it, and a "
        "larger batch only makes both longer.",
    .source = "byte accounting of the cost room; FLOP count of arXiv:2001.08361",
    .check = check,
};

}  // namespace moetax::doctor
