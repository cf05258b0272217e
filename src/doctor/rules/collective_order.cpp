#include <fmt/format.h>

#include <map>

#include "doctor/flight.h"
#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

// The first number in a group under which two dumps have different operations.
void in_dumps(const FlightMeeting& meeting, const Rule& rule, Findings& out) {
  const FlightSeat* other = nullptr;
  const FlightCall *mine = nullptr, *theirs = nullptr;
  for (std::size_t i = 1; i < meeting.seats.size(); ++i) {
    const FlightSeat& first = meeting.seats.front();
    for (const FlightCall* call : first.calls) {
      if (mine && call->sequence >= mine->sequence) break;
      const FlightCall* same = meeting.seats[i].at(call->sequence);
      if (!same || !first.at(call->sequence) || call->op == same->op) continue;
      other = &meeting.seats[i];
      mine = call;
      theirs = same;
      break;
    }
  }
  if (!mine) return;
  const FlightSeat& first = meeting.seats.front();
  Finding& f = out.add(rule, fmt::format("collective {} of {} is {} on rank {} and {} on rank {}", mine->sequence,
                                         meeting.group, mine->op, first.rank, theirs->op, other->rank));
  f.cause = "one of the two has skipped or added a collective before: the code depends on the rank or on its tokens.";
  f.evidence = {flight_evidence(first, *mine, meeting.group), flight_evidence(*other, *theirs, meeting.group)};
  f.cost.text = "the run stops here, or goes on with wrong numbers";
  f.fix = "compare the two places in the code: every rank of the group has to issue the same calls in the same order";
  f.confidence = Confidence::kCertain;
}

void check(const Facts& facts, const Rule& rule, Findings& out) {
  for (const FlightMeeting& meeting : flight_meetings(facts)) in_dumps(meeting, rule, out);
  std::map<std::string, const LogEvent*> by_op;
  for (const LogEvent* event : facts.log->of(LogKind::kWatchdog)) {
    if (event->rank && !event->op.empty()) by_op.try_emplace(event->op, event);
  }
  const LogEvent *exchange = nullptr, *other = nullptr;
  for (const auto& [op, event] : by_op) {
    (contains(op, "alltoall") ? exchange : other) = event;
  }
  if (!exchange || !other || exchange->rank == other->rank) return;
  Finding& f = out.add(
      rule, fmt::format("rank {} waits in {}, rank {} in {}", *exchange->rank, exchange->op, *other->rank, other->op));
  f.cause = "the two were issued in another order on some rank, or one rank is a whole step ahead.";
  f.evidence = {exchange->at, other->at};
  f.cost.text = "the run has stopped";
  f.fix =
      "CUDA_DEVICE_MAX_CONNECTIONS=1 without --overlap-grad-reduce, to test; then one stream for the exchange and the "
      "reduction";
  f.confidence = Confidence::kLikely;
}

}  // namespace

const Rule kCollectiveOrder = {
    .id = "collective-order",
    .severity = Severity::kError,
    .title = "ranks wait in different collectives",
    .explanation =
        "Two communicators in flight, an all-to-all of the experts and a reduction of gradients, are two "
        "queues. Where their order on the GPU depends on the rank (another number of images or chunks), one "
        "rank waits in the first while its peer waits in the second. One stream for both, or a "
        "synchronisation between them, fixes the order. Switching expert parallelism off works around it, at "
        "the price of the whole layer's weights on every rank.",
    .source = "public report Megatron-LM 5749",
    .check = check,
};

}  // namespace moetax::doctor
