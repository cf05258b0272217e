#include <fmt/format.h>

#include "doctor/flight.h"
#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

// All whose dumps are here are in it: either others are missing, or the collective itself does not end.
void check(const Facts& facts, const Rule& rule, Findings& out) {
  for (const FlightMeeting& meeting : flight_meetings(facts)) {
    const auto stop = find_stop(meeting);
    if (!stop || stop->waiting.empty() || !stop->behind.empty()) continue;
    const FlightSeat& first = *stop->waiting.front();
    const FlightCall& call = *first.at(stop->sequence);
    const bool all = !meeting.members.empty() && meeting.seats.size() >= meeting.members.size();
    Finding& f =
        out.add(rule, fmt::format("{} wait{} in {} {} of {}", ranks_text(stop->waiting),
                                  stop->waiting.size() == 1 ? "s" : "", call.op, stop->sequence, meeting.group));
    f.cause =
        all ? "every rank of the group has come, none has ended: the transfer itself does not go on, or the dump "
              "was taken in the middle of it."
            : fmt::format("{} of {} ranks of the group have a dump here; who has not come is among the others.",
                          meeting.seats.size(),
                          meeting.members.empty() ? "an unknown number of" : std::to_string(meeting.members.size()));
    f.evidence.push_back(flight_evidence(first, call, meeting.group));
    f.cost.text = "nothing, if it was a moment; the run has stopped, if it stays";
    f.fix = all ? "NCCL_DEBUG=INFO and ncclras: is a link down, or one process stopped?"
                : "give the dumps of all ranks: moetax doctor DUMP_FOLDER";
    f.confidence = Confidence::kPossible;
  }
}

}  // namespace

const Rule kRankWaits = {
    .id = "rank-waits",
    .severity = Severity::kNote,
    .title = "ranks wait in a collective, and why is not in the dumps",
    .explanation =
        "A flight recorder's dump says in which collective its rank is. Who is missing from it shows only beside the "
        "dumps of the other ranks. If all have come and none gets on, sizes and types agree, and the dump was not "
        "taken "
        "in passing, it is the transfer: a link, an adapter, a process that is stopped.",
    .source = "PyTorch's documentation of the flight recorder",
    .check = check,
};

}  // namespace moetax::doctor
