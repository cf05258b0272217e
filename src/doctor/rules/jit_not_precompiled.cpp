#include <fmt/format.h>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const JobFacts& job = facts.job;
  const Settings::Names kPrecompile = {"SGLANG_JIT_DEEPGEMM_PRECOMPILE", "SGL_JIT_DEEPGEMM_PRECOMPILE"};
  if (!job.settings.off(kPrecompile) || !job.dispatcher || job.dispatcher->value != "deepep") return;
  if (!job.nodes || job.nodes->value < 2) return;
  Finding& f = out.add(rule, fmt::format("{} nodes compile kernels in the middle of serving", job.nodes->value));
  f.cause = "compiling ahead is switched off; a rank that compiles keeps its peers waiting in dispatch.";
  f.evidence = {job.settings.where(kPrecompile), job.dispatcher->at, job.nodes->at};
  f.cost.text = "10 to 20 minutes of compiling by the engine's own banner, against a limit of about 100 s";
  f.fix =
      "unset SGLANG_JIT_DEEPGEMM_PRECOMPILE; python -m sglang.compile_deep_gemm <flags> on every node before serving";
  f.confidence = Confidence::kLikely;
}

}  // namespace

const Rule kJitNotPrecompiled = {
    .id = "jit-not-precompiled",
    .severity = Severity::kWarning,
    .title = "kernels that are compiled while peers of other nodes wait",
    .explanation =
        "Without compiling ahead, DeepGEMM's kernels are built when they are first met, for minutes, and not "
        "at the same speed on each node. With DeepEP between nodes the ranks that are ready run into its time "
        "limit of about 100 s.",
    .source = "public reports sglang 23185, 15598; DeepEP 424",
    .check = check,
};

}  // namespace moetax::doctor
