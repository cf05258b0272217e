#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "doctor/rules/rules.h"
#include "moetax/base/units.h"

namespace moetax::doctor {
namespace {

// One call as its ranks recorded it.
struct Met {
  std::map<int, double> us_of_rank;
  const InspectorCall* example = nullptr;
};

// Ends of a collective coincide, so who is in it for the shortest time came last.
void in_inspector(const Facts& facts, const Rule& rule, Findings& out) {
  std::map<std::tuple<std::string_view, std::string_view, std::int64_t>, Met> calls;
  for (const InspectorFacts& file : facts.all_inspectors()) {
    for (const InspectorCall& call : file.dump.calls) {
      if (call.rank < 0 || call.sequence < 0 || call.us <= 0) continue;
      Met& met = calls[{call.communicator, call.op, call.sequence}];
      met.us_of_rank[call.rank] = call.us;
      met.example = &call;
    }
  }
  std::map<std::string_view, std::map<int, int>> last;          // of each communicator
  std::map<std::string_view, std::pair<double, double>> times;  // in it, and waiting
  for (const auto& [key, met] : calls) {
    if (met.us_of_rank.size() < 2) continue;
    const auto shortest = std::min_element(met.us_of_rank.begin(), met.us_of_rank.end(),
                                           [](const auto& a, const auto& b) { return a.second < b.second; });
    ++last[std::get<0>(key)][shortest->first];
    for (const auto& [rank, us] : met.us_of_rank) {
      times[std::get<0>(key)].first += us;
      times[std::get<0>(key)].second += us - shortest->second;
    }
  }
  for (const auto& [communicator, by_rank] : last) {
    int all = 0;
    const std::pair<const int, int>* most = nullptr;
    for (const auto& entry : by_rank) {
      all += entry.second;
      if (!most || entry.second > most->second) most = &entry;
    }
    const auto& [in, waiting] = times[communicator];
    if (all < 5 || most->second * 10 < all * 6 || waiting < 0.3 * in) continue;
    Finding& f = out.add(rule, fmt::format("rank {} comes last to {} of {} collectives of communicator {}", most->first,
                                           most->second, all, communicator));
    f.cause =
        "ends coincide, so the rank that is in a collective for the shortest time is the one the others wait for.";
    f.evidence = {{facts.all_inspectors().front().file, 0,
                   fmt::format("{} in collectives, {} of it beyond the shortest rank's", units::time_text(in),
                               units::time_text(waiting))}};
    f.cost.us = waiting / all;
    f.cost.text = fmt::format("{} of waiting in {} calls, all ranks: {:.0f} % of their time in collectives",
                              units::time_text(waiting), all, 100 * waiting / in);
    f.fix = fmt::format(
        "expert load of rank {} first (layer_id,expert_id,count); then nvidia-smi -q -d "
        "CLOCK,PERFORMANCE there",
        most->first);
    f.confidence = Confidence::kLikely;
  }
}

void check(const Facts& facts, const Rule& rule, Findings& out) {
  in_inspector(facts, rule, out);
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
