#include <fmt/format.h>

#include "doctor/rules/rules.h"
#include "moetax/base/units.h"

namespace moetax::doctor {
namespace {

// A receive that ended by time while kernels were being compiled.
void check(const Facts& facts, const Rule& rule, Findings& out) {
  const auto timeouts = facts.log->of(LogKind::kDeepEpTimeout);
  const auto warmups = facts.log->of(LogKind::kJitWarmup);
  if (timeouts.empty() || warmups.empty()) return;
  const LogEvent* longest = warmups.back();
  for (const LogEvent* event : warmups) {
    if (!event->numbers.empty() && (longest->numbers.empty() || event->numbers[0] > longest->numbers[0]))
      longest = event;
  }
  Finding& f = out.add(rule, "a time-out while kernels were being compiled: not a fault of the network");
  f.cause =
      "DeepGEMM compiles on one rank of each node, and nodes do not finish together; whoever is ready first waits in "
      "an "
      "exchange until DeepEP's own limit of about 100 s ends it.";
  f.evidence = {longest->at, timeouts.front()->at};
  if (!longest->numbers.empty()) {
    f.cost.us = longest->numbers[0] * 1e6;
    f.cost.text = fmt::format("{} of compiling were left when the log said so, against a limit of about 100 s",
                              units::time_text(*f.cost.us));
    f.cost.us.reset();
  } else {
    f.cost.text = "one start of the server";
  }
  f.fix =
      "python -m sglang.compile_deep_gemm <the server's flags>   # once, before serving; or raise DeepEP's "
      "NUM_CPU_TIMEOUT_SECS above twice the time compiling takes";
  f.confidence = longest->numbers.empty() ? Confidence::kLikely : Confidence::kCertain;
}

}  // namespace

const Rule kJitSkewTimeout = {
    .id = "jit-skew-timeout",
    .severity = Severity::kError,
    .title = "a time-out that is compile skew",
    .explanation =
        "A cold start compiles DeepGEMM's kernels for ten minutes and more, at a different speed on each node. The "
        "first "
        "node that is ready enters a dispatch and waits for ranks that still compile; DeepEP gives up after a fixed "
        "time "
        "(about 100 s) and reports a CPU receive time-out. The fabric is not at fault: the same run works when the "
        "kernels are compiled before, or the limit is longer than the skew.",
    .source = "public reports sglang 23185, 15598, 9867; DeepEP 424, 678",
    .check = check,
};

}  // namespace moetax::doctor
