#include <fmt/format.h>

#include <map>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
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
