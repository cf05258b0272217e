#include <fmt/format.h>

#include <map>

#include "doctor/flight.h"
#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

// An exchange as all its members recorded it; empty unless all did.
std::vector<const FlightCall*> exchange_of(const FlightMeeting& meeting, std::int64_t sequence) {
  std::vector<const FlightCall*> calls;
  for (const FlightSeat& seat : meeting.seats) {
    const FlightCall* call = seat.at(sequence);
    if (!call || !(contains(call->op, "all_to_all") || contains(call->op, "alltoall"))) return {};
    if (call->in_elements.empty() || call->out_elements.empty()) return {};
    calls.push_back(call);
  }
  return calls;
}

// Where each peer has a tensor of its own, what one sends is what the other expects; in any case all that is sent is
// all that is expected. Empty when they agree.
std::string disagreement(const FlightMeeting& meeting, const std::vector<const FlightCall*>& calls) {
  std::int64_t sent = 0, expected = 0;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    sent += calls[i]->elements_in();
    expected += calls[i]->elements_out();
    if (calls[i]->in_elements.size() != calls.size()) continue;
    for (std::size_t j = 0; j < calls.size(); ++j) {
      if (calls[j]->out_elements.size() != calls.size() || calls[i]->in_elements[j] == calls[j]->out_elements[i])
        continue;
      return fmt::format("rank {} sends {} elements to rank {}, which expects {}", meeting.seats[i].rank,
                         calls[i]->in_elements[j], meeting.seats[j].rank, calls[j]->out_elements[i]);
    }
  }
  return sent == expected ? "" : fmt::format("its ranks send {} elements and expect {}", sent, expected);
}

// All members have to be here.
void in_dumps(const FlightMeeting& meeting, const Rule& rule, Findings& out) {
  if (meeting.members.size() < 2 || meeting.seats.size() != meeting.members.size()) return;
  for (const FlightCall* call : meeting.seats.front().calls) {
    const auto calls = exchange_of(meeting, call->sequence);
    const std::string how = disagreement(meeting, calls);
    if (how.empty()) continue;
    Finding& f = out.add(rule, fmt::format("{} {} of {}: {}", call->op, call->sequence, meeting.group, how));
    f.cause = "the ranks computed their splits from different counts.";
    for (std::size_t i = 0; i < calls.size(); ++i) {
      f.evidence.push_back(flight_evidence(meeting.seats[i], *calls[i], meeting.group));
    }
    f.cost.text = "the exchange hangs or returns rows of others";
    f.fix =
        "exchange the counts first: dist.all_to_all_single(recv_counts, send_counts), and use these as output splits";
    f.confidence = Confidence::kCertain;
    return;
  }
}

void check(const Facts& facts, const Rule& rule, Findings& out) {
  for (const FlightMeeting& meeting : flight_meetings(facts)) in_dumps(meeting, rule, out);
  std::map<int, const LogEvent*> by_rank;
  for (const LogEvent* event : facts.log->of(LogKind::kSplits)) {
    if (event->rank && *event->rank >= 0 && !event->numbers.empty() && event->numbers.size() == event->second.size()) {
      by_rank.try_emplace(*event->rank, event);
    }
  }
  for (const auto& [from, sends] : by_rank) {
    for (const auto& [to, receives] : by_rank) {
      const auto at = static_cast<std::size_t>(to), back = static_cast<std::size_t>(from);
      if (at >= sends->numbers.size() || back >= receives->second.size()) continue;
      if (sends->numbers[at] == receives->second[back]) continue;
      Finding& f = out.add(rule, fmt::format("rank {} sends {:.0f} rows to rank {}, which expects {:.0f}", from,
                                             sends->numbers[at], to, receives->second[back]));
      f.cause = "the two ranks computed their splits from different counts.";
      f.evidence = {sends->at, receives->at};
      f.cost.text = "the exchange hangs or returns rows of others";
      f.fix =
          "exchange the counts first: dist.all_to_all_single(recv_counts, send_counts), and use these as output splits";
      f.confidence = Confidence::kCertain;
      return;
    }
  }
  const auto refused = facts.log->of(LogKind::kSplitMismatch);
  if (refused.empty() || by_rank.size() > 1) return;
  Finding& f = out.add(rule, "split sizes do not add up to the rows there are");
  f.cause = "counts of another batch, or of padded tokens, are used.";
  f.evidence = {refused.front()->at};
  f.cost.text = "the run ends here";
  f.fix = "print input_splits and output_splits of every rank: one must be the transpose of the other";
  f.confidence = Confidence::kLikely;
}

}  // namespace

const Rule kSplitsNotTransposed = {
    .id = "splits-not-transposed",
    .severity = Severity::kError,
    .title = "ranks disagree about who sends what to whom",
    .explanation =
        "In an all-to-all what rank i sends to j has to be what j expects from i: the lists of received sizes "
        "are the transpose of those of sent ones. Where they are not, the exchange hangs or reads rows that "
        "are not there.",
    .source = "contract of alltoallv; PyTorch's check of split sizes",
    .check = check,
};

}  // namespace moetax::doctor
