#include <fmt/format.h>

#include "doctor/rules/rules.h"
#include "moetax/base/units.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const auto timeouts = facts.log->of(LogKind::kDeepEpTimeout);
  if (timeouts.empty() || facts.log->has(LogKind::kJitWarmup)) return;
  for (const LogFacts::Gap& gap : facts.log->gaps) {
    if (gap.seconds < 120 || gap.before.file != timeouts.front()->at.file) continue;
    Finding& f =
        out.add(rule, fmt::format("{} without a line before the time-out", units::time_text(gap.seconds * 1e6)));
    f.cause = "all ranks were silent; a fault of the network would let others go on.";
    f.evidence = {gap.before, gap.after, timeouts.front()->at};
    f.cost.text = fmt::format("{} of this start", units::time_text(gap.seconds * 1e6));
    f.fix = "python -m sglang.compile_deep_gemm <flags>   # rule out compiling first; then --chunked-prefill-size 4096";
    f.confidence = Confidence::kPossible;
    return;
  }
}

}  // namespace

const Rule kSilentGap = {
    .id = "silent-gap",
    .severity = Severity::kWarning,
    .title = "minutes of silence before a time-out",
    .explanation =
        "A receive that ends by time is the end of the story. Where no rank wrote a line for minutes before "
        "it, something long was going on: compiling kernels, loading weights, a prefill of thousands of "
        "tokens. Look for that before the network.",
    .source = "public report sglang 6701",
    .check = check,
};

}  // namespace moetax::doctor
