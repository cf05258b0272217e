#include <fmt/format.h>

#include "doctor/flight.h"
#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

// What a rank that has not come did last.
std::string doing(const FlightSeat& seat) {
  if (!seat.last) return fmt::format("rank {} has recorded nothing", seat.rank);
  const FlightCall& call = *seat.last;
  const std::string where = call.where.empty() ? "" : ", called at " + call.where;
  const std::string group = flight_group_name(seat.from->dump, call);
  if (call.state == FlightState::kCompleted) {
    return fmt::format(
        "the last of rank {} is {} {} of {}, which has ended{}: since then it computes, is in code on the "
        "host, or has left",
        seat.rank, call.op, call.sequence, group, where);
  }
  return fmt::format("rank {} is in {} {} of {}{}: look at that one first", seat.rank, call.op, call.sequence, group,
                     where);
}

void report(const FlightMeeting& meeting, const FlightStop& stop, const Rule& rule, Findings& out) {
  const FlightSeat& first = *stop.waiting.front();
  const FlightCall& call = *first.at(stop.sequence);
  const FlightSeat& late = *stop.behind.front();
  Finding& f = out.add(rule, fmt::format("{} never came to {} {} of {}", ranks_text(stop.behind), call.op,
                                         stop.sequence, meeting.group));
  f.cause = fmt::format("{} wait{} in it. Of this group rank {} had come to {}; {}.", ranks_text(stop.waiting),
                        stop.waiting.size() == 1 ? "s" : "", late.rank,
                        late.newest() < 0 ? "none" : std::to_string(late.newest()), doing(late));
  f.evidence.push_back(flight_evidence(first, call, meeting.group));
  for (const FlightSeat* seat : stop.behind) {
    if (!seat->last) continue;
    f.evidence.push_back(flight_evidence(*seat, *seat->last, flight_group_name(seat->from->dump, *seat->last)));
  }
  f.cost.text = "the run has stopped";
  f.fix = fmt::format("py-spy dump --pid PID_OF_RANK_{}   # where it is; then what made it skip or delay this call",
                      late.rank);
  const bool elsewhere = late.last && late.last->state != FlightState::kCompleted;
  f.confidence = elsewhere ? Confidence::kLikely : Confidence::kCertain;
}

void check(const Facts& facts, const Rule& rule, Findings& out) {
  for (const FlightMeeting& meeting : flight_meetings(facts)) {
    const auto stop = find_stop(meeting);
    if (stop && !stop->waiting.empty() && !stop->behind.empty()) report(meeting, *stop, rule, out);
  }
}

}  // namespace

const Rule kRankBehind = {
    .id = "rank-behind",
    .severity = Severity::kError,
    .title = "a rank that has not come to the collective that others wait in",
    .explanation =
        "Each rank's flight recorder keeps its last collectives with their number in the group and whether they have "
        "ended. The first that some ranks are in and another has not reached is where the job stopped, and that other "
        "rank is why. Its own last call tells more: ended long ago means that it left the program, is in code of the "
        "host or ran out of work; not ended means that it waits in another group, for somebody else.",
    .source = "PyTorch's documentation of the flight recorder; public reports deepspeed-course 28, NeMo Automodel 1365",
    .check = check,
};

}  // namespace moetax::doctor
