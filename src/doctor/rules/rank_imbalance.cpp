#include <fmt/format.h>

#include <algorithm>

#include "doctor/load.h"
#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const int ranks = facts.job.ep ? facts.job.ep->value : 0;
  for (const LoadFacts& load : facts.all_loads()) {
    const auto balance = rank_balance(load, ranks);
    if (!balance || balance->median < 1.25) continue;
    Finding& f = out.add(
        rule, fmt::format("the busiest of {} ranks has {:.2f}x the mean load (median of layers), {:.2f}x in layer {}",
                          ranks, balance->median, balance->worst, balance->worst_layer));
    f.cause =
        fmt::format("experts in equal blocks over {} ranks; the largest expert alone has {:.2f}x the mean expert.",
                    ranks, balance->worst_expert);
    f.evidence = {{load.file, 0,
                   fmt::format("layer {}: rank {} has {:.0f} of {:.0f}", balance->worst_layer, balance->worst_rank,
                               balance->worst_rows, balance->layer_rows)},
                  facts.job.ep->at};
    f.cost.text =
        fmt::format("{:.0f} % of the experts' time is waiting, by this load", 100 * (1 - 1 / balance->median));
    f.fix = facts.job.is("sglang") ? "--enable-eplb   # and look at the rank max/mean again"
            : facts.job.is("vllm") ? "--enable-eplb --eplb-config '{\"num_redundant_experts\": 32}'"
                                   : "another placement of the experts (EPLB), or a stronger balance loss in training";
    f.confidence = Confidence::kLikely;
  }
}

}  // namespace

const Rule kRankImbalance = {
    .id = "rank-imbalance",
    .severity = Severity::kWarning,
    .title = "expert-parallel ranks with uneven load",
    .explanation =
        "A step waits for the rank with the most rows. What counts is the load of ranks, not of experts: hot "
        "and cold experts on one rank cancel. Rank max/mean minus one is the share of expert time that all "
        "other ranks wait. Another placement of the same experts (EPLB) evens it out where the hot ones do "
        "not sit in one expert alone.",
    .source = "public reports sglang 6739, vllm-ascend 16795; load data as in docs/doctor.md",
    .check = check,
};

}  // namespace moetax::doctor
