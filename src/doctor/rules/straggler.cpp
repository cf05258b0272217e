#include <fmt/format.h>

#include <map>

#include "doctor/rules/rules.h"
#include "moetax/base/units.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  for (const BillFacts& bill : facts.all_bills()) {
    if (!bill.rank_max_over_mean || *bill.rank_max_over_mean > 1.1 || bill.step_us <= 0) continue;
    std::map<int, double> late;
    const BillFacts::Wait* example = nullptr;
    for (const BillFacts::Wait& wait : bill.waits) {
      if (wait.cause == "expert_load" || wait.cause == "expert-load" || wait.cause == "planted") continue;
      late[wait.late] += wait.us;
      if (!example || wait.us > example->us) example = &wait;
    }
    const std::pair<const int, double>* most = nullptr;
    double all = 0;
    for (const auto& entry : late) {
      all += entry.second;
      if (!most || entry.second > most->second) most = &entry;
    }
    const double share = most && bill.wait_us ? *bill.wait_us / bill.step_us : 0;
    if (!most || most->first < 0 || most->second < 0.6 * all || share < 0.05) continue;
    Finding& f = out.add(rule, fmt::format("the others wait for rank {}, and not because of its experts", most->first));
    f.cause = fmt::format("rank max/mean of the load is {:.2f}; {}.", *bill.rank_max_over_mean, example->cause_text);
    f.evidence = {
        {bill.file, 0,
         fmt::format("rank {} waits {} for rank {}", example->rank, units::time_text(example->us), example->late)}};
    f.cost.us = *bill.wait_us;
    f.cost.share = share;
    f.cost.text = fmt::format("{} of a step of {}, {:.1f} %", units::time_text(*bill.wait_us),
                              units::time_text(bill.step_us), 100 * share);
    f.fix = fmt::format("nvidia-smi -q -d CLOCK,PERFORMANCE on rank {}'s GPU; look for other processes on its cores",
                        most->first);
    f.confidence = Confidence::kLikely;
  }
}

}  // namespace

const Rule kStraggler = {
    .id = "straggler",
    .severity = Severity::kWarning,
    .title = "waiting that is not the experts' load",
    .explanation =
        "The bill tells for each wait why the late rank was late. Where the load of ranks is even and the "
        "waits are still for the same rank, that rank is slower: clocks, another process, a core it shares. "
        "Balancing experts cannot help; the machine has to be looked at.",
    .source = "public reports Megatron-LM 4662; VIBE, arXiv:2606.00735",
    .check = check,
};

}  // namespace moetax::doctor
