#include <fmt/format.h>

#include <algorithm>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const Settings& s = facts.job.settings;
  const Settings::Names kFactor = {"moe_expert_capacity_factor", "capacity_factor", "moe_capacity_factor",
                                   "moe_train_capacity_factor"};
  const auto factor = s.number(kFactor);
  if (!factor || *factor <= 0 || *factor > 100 || s.off({"drop_tokens", "moe_drop_tokens"})) return;
  for (const LoadFacts& load : facts.all_loads()) {
    double worst = 0;
    int layer_id = 0;
    for (const ExpertCounts& layer : load.layers) {
      double sum = 0, over = 0;
      for (const double count : layer.counts) sum += count;
      for (const double count : layer.counts) {
        over += std::max(0.0, count - *factor * sum / static_cast<double>(layer.counts.size()));
      }
      if (sum > 0 && over / sum > worst) {
        worst = over / sum;
        layer_id = layer.layer;
      }
    }
    if (worst < 0.03 || !load.all_listed) continue;
    Finding& f =
        out.add(rule, fmt::format("capacity factor {:g} drops {:.0f} % of layer {}", *factor, 100 * worst, layer_id));
    f.cause = "the load of that layer is uneven: what an expert gets above factor x mean is dropped.";
    f.evidence = {s.where(kFactor), {load.file, 0, fmt::format("layer {}", layer_id)}};
    f.cost.text = fmt::format("{:.1f} % of that layer's assignments pass without their expert", 100 * worst);
    f.cost.share = std::nullopt;
    f.fix = "a larger factor, a stronger balance loss, or dropless dispatch";
    f.confidence = Confidence::kLikely;
  }
}

}  // namespace

const Rule kCapacityDrops = {
    .id = "capacity-drops",
    .severity = Severity::kWarning,
    .title = "a capacity that drops a large part of the assignments",
    .explanation =
        "A token whose expert is full is dropped: it passes the layer by the residual alone. What a factor "
        "drops follows from the load: everything above factor x mean. Uneven layers lose many times what the "
        "mean layer loses.",
    .source = "public reports marin 7279, vLLM 50151; capacity as in GShard (arXiv:2006.16668)",
    .check = check,
};

}  // namespace moetax::doctor
