#include <fmt/format.h>

#include <algorithm>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

const Settings::Names kFactor = {"moe_expert_capacity_factor", "capacity_factor", "moe_capacity_factor",
                                 "moe_train_capacity_factor"};

// Share of a layer's assignments above factor x mean.
double dropped(const ExpertCounts& layer, double factor) {
  double sum = 0, over = 0;
  for (const double count : layer.counts) sum += count;
  const double cap = factor * sum / static_cast<double>(layer.counts.size());
  for (const double count : layer.counts) over += std::max(0.0, count - cap);
  return sum > 0 ? over / sum : 0;
}

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const Settings& s = facts.job.settings;
  const auto factor = s.number(kFactor);
  if (!factor || *factor <= 1 || *factor > 100) return;
  const bool pads = s.on({"moe_pad_expert_input_to_capacity"}) || facts.job.is("deepspeed");
  if (!pads) return;
  Finding& f = out.add(rule, fmt::format("experts work on {:.0f} % more rows than they get", 100 * (*factor - 1)));
  f.cause = fmt::format("every expert is padded to {:g} times the mean load.", *factor);
  f.evidence = {s.where(kFactor)};
  f.cost.text = fmt::format("{:.0f} % of the experts' time", 100 * (*factor - 1) / *factor);
  for (const LoadFacts& load : facts.all_loads()) {
    double at_factor = 0, at_one = 0;
    for (const ExpertCounts& layer : load.layers) {
      at_factor = std::max(at_factor, dropped(layer, *factor));
      at_one = std::max(at_one, dropped(layer, 1.0));
    }
    f.evidence.push_back({load.file, 0, ""});
    f.cost.text +=
        fmt::format("; by this load {:g} drops {:.1f} % of the worst layer's assignments, 1.0 would drop {:.1f} %",
                    *factor, 100 * at_factor, 100 * at_one);
    break;
  }
  f.fix =
      "without padding: drop --moe-pad-expert-input-to-capacity; with it: the smallest factor whose drops you accept";
  f.confidence = Confidence::kCertain;
}

}  // namespace

const Rule kCapacityPadding = {
    .id = "capacity-padding",
    .severity = Severity::kNote,
    .title = "experts padded to a capacity above their mean load",
    .explanation =
        "Padding every expert to capacity factor c runs c times the mean rows through it, whatever it got: (c "
        "- 1) of the experts' time is spent on zeros. What a lower factor drops follows from the load; with a "
        "recorded load it is computed here for each layer.",
    .source = "public reports marin 4017, 7279; Megatron's capacity options",
    .check = check,
};

}  // namespace moetax::doctor
