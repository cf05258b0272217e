#include <fmt/format.h>

#include <set>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  std::set<int> waiting, gone;
  const LogEvent* wait = nullptr;
  for (const LogEvent* event : facts.log->of(LogKind::kWatchdog)) {
    if (!event->rank || !contains(event->op, "alltoall")) continue;
    waiting.insert(*event->rank);
    if (!wait) wait = event;
  }
  const LogEvent* end = nullptr;
  for (const LogEvent* event : facts.log->of(LogKind::kExited)) {
    if (!event->rank || waiting.count(*event->rank)) continue;
    gone.insert(*event->rank);
    if (!end) end = event;
  }
  if (waiting.empty() || gone.empty()) return;
  Finding& f =
      out.add(rule, fmt::format("rank {} waits in an all-to-all, rank {} has ended", *waiting.begin(), *gone.begin()));
  f.cause = fmt::format(
      "{} rank(s) are in the exchange and {} have left the program: the code around it depends on the rank.",
      waiting.size(), gone.size());
  f.evidence = {wait->at, end->at};
  f.cost.text = "the run has stopped";
  f.fix = "run the forward pass on every rank and print on rank 0:  out = model(x);  if rank == 0: print(out)";
  f.confidence = Confidence::kLikely;
}

}  // namespace

const Rule kRankLeft = {
    .id = "rank-left",
    .severity = Severity::kError,
    .title = "some ranks wait in an exchange that others have left the program without",
    .explanation =
        "A forward pass that only rank 0 runs (an evaluation, a sample for the log) holds all-to-alls of "
        "every rank. The other ranks have returned, ended or gone on, and never come. Guard what is printed, "
        "not what is computed.",
    .source = "public reports deepspeed-course 28, DeepSpeed 6634",
    .check = check,
};

}  // namespace moetax::doctor
