#include <fmt/format.h>

#include <map>
#include <set>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

std::string ranks_text(const std::vector<const LogEvent*>& events) {
  std::set<int> ranks;
  for (const LogEvent* event : events) {
    if (event->rank) ranks.insert(*event->rank);
  }
  std::string text;
  for (const int rank : ranks) text += fmt::format("{}{}", text.empty() ? "" : ", ", rank);
  return text.empty() ? "unknown" : text;
}

// Ranks that wait in the same group's same collective, but with buffers of other sizes.
void check(const Facts& facts, const Rule& rule, Findings& out) {
  std::map<std::pair<std::string, long long>, std::map<long long, std::vector<const LogEvent*>>> by_call;
  for (const LogEvent* event : facts.log->of(LogKind::kWatchdog)) {
    if (event->seq && event->elements) by_call[{event->group, *event->seq}][*event->elements].push_back(event);
  }
  for (const auto& [call, by_size] : by_call) {
    if (by_size.size() < 2) continue;
    Finding& f = out.add(rule, fmt::format("collective {} is entered with buffers of different sizes", call.second));
    f.cause = "the ranks are at different places of the program: ";
    for (const auto& [size, events] : by_size) {
      f.cause += fmt::format("{} elements on rank {}; ", size, ranks_text(events));
      f.evidence.push_back(events.front()->at);
    }
    f.cause += "the smallest group is where to look.";
    f.cost.text = "the run has stopped";
    f.fix =
        "ZeRO-3 with per-expert modules: set_z3_leaf_modules(model, [MoEBlock]); otherwise give experts without tokens "
        "a "
        "token of weight zero, so that every rank issues the same collectives";
    f.confidence = Confidence::kCertain;
  }
}

}  // namespace

const Rule kCollectiveMismatch = {
    .id = "collective-mismatch",
    .severity = Severity::kError,
    .title = "ranks are in the same collective with different sizes",
    .explanation =
        "The watchdog prints for each rank which collective it waited in (SeqNum) and how many elements it brought "
        "(NumelIn). The same number with different sizes means that the ranks have left lock-step: some skipped a "
        "collective that others issued. With Mixture-of-Experts models the usual reason is that ranks use different "
        "experts, and parameters of unused ones are not gathered or reduced. Network settings do not help.",
    .source = "public reports DeepSpeed 5066, LLaMA-Factory 1998",
    .check = check,
};

}  // namespace moetax::doctor
