#include <fmt/format.h>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
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
