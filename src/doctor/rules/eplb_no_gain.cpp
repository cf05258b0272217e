#include <fmt/format.h>

#include "doctor/load.h"
#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const Settings::Names kFlags = {"enable_eplb", "eplb"};
  const Settings& s = facts.job.settings;
  if (!s.on(kFlags) || !facts.job.ep) return;
  if (facts.job.ep->value == 1) {
    Finding& f = out.add(rule, "experts are balanced over one rank");
    f.cause = "one rank works on all rows whatever expert they chose; its time follows their number.";
    f.evidence = {s.where(kFlags), facts.job.ep->at};
    f.cost.text = "nothing can be won; a balanced load was even 2 to 3 % slower in one report";
    f.fix = "drop --enable-eplb";
    f.confidence = Confidence::kCertain;
    return;
  }
  for (const LoadFacts& load : facts.all_loads()) {
    const auto balance = rank_balance(load, facts.job.ep->value);
    if (!balance || balance->worst > 1.08) continue;
    Finding& f =
        out.add(rule, fmt::format("ranks are within {:.0f} % of each other, balancing can win no more than that",
                                  100 * (balance->worst - 1)));
    f.cause = fmt::format("rank max/mean {:.2f} in the worst layer, expert max/mean {:.2f}.", balance->worst,
                          balance->worst_expert);
    f.evidence = {s.where(kFlags), {load.file, 0, fmt::format("layer {}", balance->worst_layer)}};
    f.cost.text = fmt::format("at most {:.1f} % of the experts' time can be won; each rebalance stops serving",
                              100 * (1 - 1 / balance->worst));
    f.fix = "drop --enable-eplb, or record the load of real traffic first";
    f.confidence = Confidence::kLikely;
  }
}

}  // namespace

const Rule kEplbNoGain = {
    .id = "eplb-no-gain",
    .severity = Severity::kWarning,
    .title = "balancing is on where ranks are even already",
    .explanation =
        "Balancing moves weights and takes time; where ranks are within a few percent of each other it has "
        "nothing to win. Even load is usual with random prompts, which route almost uniformly. Uneven experts "
        "are no sign: ranks count.",
    .source = "public reports sglang 6017, antgroup/sglang 2, vLLM 37656; scattermoe 10",
    .check = check,
};

}  // namespace moetax::doctor
