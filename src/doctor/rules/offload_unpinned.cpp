#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const Settings& s = facts.job.settings;
  const Settings::Names kDevice = {"offload_param.device", "offload_optimizer.device"};
  const Settings::Names kPinned = {"offload_param.pin_memory", "offload_optimizer.pin_memory"};
  if (s.word(kDevice) != "cpu" || !s.off(kPinned)) return;
  Finding& f = out.add(rule, "weights are copied from pageable memory");
  f.cause = "pin_memory is off: every copy is staged, and none runs under compute.";
  f.evidence = {s.where(kDevice), s.where(kPinned)};
  f.cost = cannot_price("a profile; 21 % of prefill in one report");
  f.fix = "\"pin_memory\": true";
  f.confidence = Confidence::kCertain;
}

}  // namespace

const Rule kOffloadUnpinned = {
    .id = "offload-unpinned",
    .severity = Severity::kWarning,
    .title = "offloaded weights in memory that the GPU cannot read directly",
    .explanation =
        "Copies from pageable memory go through a staging buffer and wait for the host. Page-locked memory "
        "gave 21 % on prefill in one report, and only it can overlap with compute.",
    .source = "public report llama.cpp 25859; DeepSpeed's documentation of offload",
    .check = check,
};

}  // namespace moetax::doctor
