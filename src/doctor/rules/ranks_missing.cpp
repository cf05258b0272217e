#include <fmt/format.h>

#include <algorithm>

#include "doctor/flight.h"
#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

// Dumps of most of a group, and none of the rest: it ended before it could write one, or its file was not given.
void without_dump(const Facts& facts, const Rule& rule, Findings& out) {
  const FlightMeeting* largest = nullptr;
  const auto meetings = flight_meetings(facts);
  for (const FlightMeeting& meeting : meetings) {
    if (!largest || meeting.members.size() > largest->members.size()) largest = &meeting;
  }
  if (!largest || largest->seats.size() < 2 || largest->seats.front().rank < 0) return;
  std::vector<int> absent;
  for (const int rank : largest->members) {
    const bool here = std::any_of(largest->seats.begin(), largest->seats.end(),
                                  [&](const FlightSeat& seat) { return seat.rank == rank; });
    if (!here) absent.push_back(rank);
  }
  if (absent.empty() || absent.size() * 2 > largest->members.size()) return;
  Finding& f = out.add(rule, fmt::format("no dump of rank {}{}", absent.front(),
                                         absent.size() > 1 ? fmt::format(" and {} others", absent.size() - 1) : ""));
  f.severity = Severity::kWarning;
  f.cause = fmt::format("{} of the {} ranks of {} have written one; the others ended before, or theirs were not given.",
                        largest->seats.size(), largest->members.size(), largest->group);
  f.evidence = {
      {largest->seats.front().from->file, 0, fmt::format("{} has {} ranks", largest->group, largest->members.size())}};
  f.cost.text = "the run has stopped, if the rank is gone";
  f.fix = fmt::format("look at the log of rank {} first: what it says last is the cause", absent.front());
  f.confidence = Confidence::kPossible;
}

void check(const Facts& facts, const Rule& rule, Findings& out) {
  without_dump(facts, rule, out);
  const auto missing = facts.log->of(LogKind::kMissingRank);
  if (!missing.empty()) {
    Finding& f = out.add(rule, fmt::format("rank {} does not answer", missing.front()->rank.value_or(-1)));
    f.cause = fmt::format("{} rank(s) of their communicators are missing; the others wait for them.", missing.size());
    for (const LogEvent* event : missing) f.evidence.push_back(event->at);
    f.cost.text = "the run has stopped, or will at the next collective";
    f.fix = "look at that rank's own log and process first; NCCL_DEBUG=INFO says whether it was aborted";
    f.confidence = Confidence::kLikely;
  }
  const auto counts = facts.log->of(LogKind::kOperationCount);
  if (counts.size() < 2) return;
  const LogEvent *most = counts[0], *least = counts[0];
  for (const LogEvent* event : counts) {
    if (event->seq.value_or(0) > most->seq.value_or(0)) most = event;
    if (event->seq.value_or(0) < least->seq.value_or(0)) least = event;
  }
  if (most->seq == least->seq) return;
  Finding& f = out.add(rule, fmt::format("some ranks are at operation {}, others at {}", *least->seq, *most->seq));
  f.severity = Severity::kWarning;
  f.cause = "ask again after a minute: if the smaller number has not moved, these ranks are stuck or gone.";
  f.evidence = {least->at, most->at};
  f.cost.text = "nothing, if it was a moment; the run has stopped, if it stays";
  f.fix = "ncclras; ncclras   # twice, a minute apart; then py-spy dump of a rank that is behind";
  f.confidence = Confidence::kPossible;
}

}  // namespace

const Rule kRanksMissing = {
    .id = "ranks-missing",
    .severity = Severity::kError,
    .title = "ranks that do not answer",
    .explanation =
        "NCCL's RAS asks every process of a job. A rank that it lists as missing or unresponsive is dead, "
        "stopped, or cut off, and collectives of its communicators wait for it. Ranks whose count of "
        "collectives is behind are where to look when all answer.",
    .source = "NCCL's documentation of RAS",
    .check = check,
};

}  // namespace moetax::doctor
