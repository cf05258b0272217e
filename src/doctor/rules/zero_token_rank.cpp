#include <fmt/format.h>

#include <algorithm>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

// Experts in equal blocks over the ranks: which rank got nothing in which layer.
void in_load(const Facts& facts, const LoadFacts& load, const Rule& rule, Findings& out) {
  const int ranks = facts.job.ep ? facts.job.ep->value : 0;
  if (ranks < 2 || load.experts % ranks != 0 || !load.all_listed) return;
  const int per_rank = load.experts / ranks;
  for (const ExpertCounts& layer : load.layers) {
    for (int rank = 0; rank < ranks; ++rank) {
      const auto begin = layer.counts.begin() + static_cast<std::ptrdiff_t>(rank) * per_rank;
      if (std::any_of(begin, begin + per_rank, [](double count) { return count > 0; })) continue;
      Finding& f = out.add(rule, fmt::format("rank {} got no tokens in layer {}", rank, layer.layer));
      f.cause = fmt::format("none of experts {} to {} was chosen.", rank * per_rank, (rank + 1) * per_rank - 1);
      f.evidence = {
          {load.file, 0,
           fmt::format("layer {}, experts {}-{}: 0", layer.layer, rank * per_rank, (rank + 1) * per_rank - 1)},
          facts.job.ep->at};
      f.cost.text = "hangs where code skips experts without tokens; otherwise an idle rank";
      f.fix = "give the local experts one token of weight zero when there is none";
      f.severity = Severity::kWarning;
      f.confidence = Confidence::kPossible;
      return;
    }
  }
}

void in_log(const Facts& facts, const Rule& rule, Findings& out) {
  const bool stopped = facts.log->has(LogKind::kWatchdog);
  for (const LogEvent* event : facts.log->of(LogKind::kRankCounts)) {
    if (event->op != "tokens" || event->numbers.size() < 2) continue;
    const auto zero = std::find(event->numbers.begin(), event->numbers.end(), 0.0);
    if (zero == event->numbers.end()) continue;
    Finding& f = out.add(rule, fmt::format("rank {} got no tokens", zero - event->numbers.begin()));
    f.cause = "its experts are skipped, and with them the hooks of their backward pass.";
    f.evidence = {event->at};
    if (stopped) f.evidence.push_back(facts.log->of(LogKind::kWatchdog).front()->at);
    f.cost.text = stopped ? "the run has stopped" : "the next collective may wait for this rank";
    f.fix = "give the local experts one token of weight zero when there is none (y + 0 * x)";
    f.confidence = stopped ? Confidence::kLikely : Confidence::kPossible;
    return;
  }
}

void check(const Facts& facts, const Rule& rule, Findings& out) {
  in_log(facts, rule, out);
  for (const LoadFacts& load : facts.all_loads()) in_load(facts, load, rule, out);
}

}  // namespace

const Rule kZeroTokenRank = {
    .id = "zero-token-rank",
    .severity = Severity::kError,
    .title = "a rank without tokens that skips its experts",
    .explanation =
        "A rank whose experts get no token has nothing to multiply. Where the code skips the experts then, "
        "their parameters have no gradient and no backward hook, and the next data-parallel or expert- "
        "parallel collective is entered by fewer ranks than expected. A token of weight zero (y + 0 * x) "
        "keeps the graph the same on every rank.",
    .source = "public reports Automodel 1365, 935; Megatron-LM 4851",
    .check = check,
};

}  // namespace moetax::doctor
