#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const Settings& s = facts.job.settings;
  if (s.on({"CUDA_LAUNCH_BLOCKING"})) {
    Finding& f = out.add(rule, "every kernel launch waits for the kernel");
    f.cause = "CUDA_LAUNCH_BLOCKING=1: nothing overlaps, exchanges neither.";
    f.evidence = {s.where({"CUDA_LAUNCH_BLOCKING"})};
    f.severity = Severity::kWarning;
    f.cost = cannot_price("a profile: all overlap is lost");
    f.fix = "unset CUDA_LAUNCH_BLOCKING";
    f.confidence = Confidence::kCertain;
  }
  if (s.word({"TORCH_DISTRIBUTED_DEBUG"}) == "detail") {
    Finding& f = out.add(rule, "every collective is checked over all ranks first");
    f.cause = "TORCH_DISTRIBUTED_DEBUG=DETAIL compares shapes by an extra gather before each.";
    f.evidence = {s.where({"TORCH_DISTRIBUTED_DEBUG"})};
    f.cost = cannot_price("a profile: one more collective before each");
    f.fix = "export TORCH_DISTRIBUTED_DEBUG=OFF";
    f.confidence = Confidence::kCertain;
  }
  if (s.word({"NCCL_DEBUG"}) == "trace") {
    Finding& f = out.add(rule, "NCCL writes a line for every call");
    f.cause = "NCCL_DEBUG=TRACE.";
    f.evidence = {s.where({"NCCL_DEBUG"})};
    f.cost = cannot_price("a profile");
    f.fix = "export NCCL_DEBUG=WARN";
    f.confidence = Confidence::kCertain;
  }
}

}  // namespace

const Rule kDebugLeftOn = {
    .id = "debug-left-on",
    .severity = Severity::kNote,
    .title = "debugging settings that slow every step",
    .explanation =
        "Blocking launches serialise CPU and GPU; detailed checks of collectives add a synchronisation and a "
        "gather to each; tracing NCCL writes a line per call. All are right while looking for an error, and "
        "cost in every step after.",
    .source = "documentation of CUDA, PyTorch and NCCL",
    .check = check,
};

}  // namespace moetax::doctor
