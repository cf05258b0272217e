#include <fmt/format.h>

#include <map>
#include <set>

#include "doctor/flight.h"
#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

std::string ranks_of(const std::vector<const LogEvent*>& events) {
  std::set<int> ranks;
  for (const LogEvent* event : events) {
    if (event->rank) ranks.insert(*event->rank);
  }
  std::string text;
  for (const int rank : ranks) text += fmt::format("{}{}", text.empty() ? "" : ", ", rank);
  return text.empty() ? "unknown" : text;
}

const char* const kFix =
    "ZeRO-3 with per-expert modules: set_z3_leaf_modules(model, [MoEBlock]); otherwise give experts without tokens a "
    "token of weight zero, so that every rank issues the same collectives";

// Reductions, gathers and broadcasts bring as many elements on every rank, of one type.
bool same_everywhere(std::string_view op) {
  return !contains(op, "all_to_all") && !contains(op, "alltoall") && !contains(op, "gather_v") &&
         !contains(op, "scatter_v") && !contains(op, "coalesced");
}

bool differ(const FlightCall& a, const FlightCall& b) {
  if (a.op != b.op || !same_everywhere(a.op)) return false;
  const bool sizes = !a.in_elements.empty() && !b.in_elements.empty() && a.elements_in() != b.elements_in();
  return sizes || (!a.dtype.empty() && !b.dtype.empty() && a.dtype != b.dtype);
}

// The first collective of a group that two dumps have with different sizes or types.
void in_dumps(const FlightMeeting& meeting, const Rule& rule, Findings& out) {
  if (meeting.seats.size() < 2) return;
  const FlightSeat& first = meeting.seats.front();
  const FlightSeat* other = nullptr;
  const FlightCall *mine = nullptr, *theirs = nullptr;
  for (std::size_t i = 1; i < meeting.seats.size(); ++i) {
    for (const FlightCall* call : first.calls) {
      if (mine && call->sequence >= mine->sequence) break;
      const FlightCall* same = meeting.seats[i].at(call->sequence);
      if (!same || !first.at(call->sequence) || !differ(*call, *same)) continue;
      other = &meeting.seats[i];
      mine = call;
      theirs = same;
      break;
    }
  }
  if (!mine) return;
  Finding& f = out.add(rule, fmt::format("{} {} of {} is entered with different {}", mine->op, mine->sequence,
                                         meeting.group, mine->dtype == theirs->dtype ? "sizes" : "types"));
  f.cause =
      fmt::format("{} elements of {} on rank {}, {} of {} on rank {}: they are at different places of the program.",
                  mine->elements_in(), mine->dtype, first.rank, theirs->elements_in(), theirs->dtype, other->rank);
  f.evidence = {flight_evidence(first, *mine, meeting.group), flight_evidence(*other, *theirs, meeting.group)};
  f.cost.text = "the run stops here, or goes on with wrong numbers";
  f.fix = kFix;
  f.confidence = Confidence::kCertain;
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
      f.cause += fmt::format("{} elements on rank {}; ", size, ranks_of(events));
      f.evidence.push_back(events.front()->at);
    }
    f.cause += "the smallest group is where to look.";
    f.cost.text = "the run has stopped";
    f.fix = kFix;
    f.confidence = Confidence::kCertain;
  }
  for (const FlightMeeting& meeting : flight_meetings(facts)) in_dumps(meeting, rule, out);
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
