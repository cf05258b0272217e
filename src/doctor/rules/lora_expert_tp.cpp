#include <fmt/format.h>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const JobFacts& job = facts.job;
  const Settings& s = job.settings;
  const Settings::Names kTargets = {"target_modules", "lora_target_modules", "lora_target", "peft.target_modules"};
  const auto targets = s.word(kTargets);
  if (!targets || !job.tp || !job.etp || job.tp->value == job.etp->value) return;
  const bool experts = contains(*targets, "fc1") || contains(*targets, "fc2") || contains(*targets, "experts") ||
                       contains(*targets, "gate_proj") || contains(*targets, "down_proj");
  if (!experts || !facts.model) return;
  Finding& f =
      out.add(rule, fmt::format("LoRA on expert layers with expert TP {} and TP {}", job.etp->value, job.tp->value));
  f.cause = "the adapters gather over the tensor-parallel group, the experts live on another.";
  f.evidence = {s.where(kTargets), job.tp->at, job.etp->at};
  f.cost.text = "the run hangs in the first step";
  f.fix = fmt::format("--expert-tensor-parallel-size {}   # or a version of the adapters that knows expert groups",
                      job.tp->value);
  f.confidence = Confidence::kLikely;
}

}  // namespace

const Rule kLoraExpertTp = {
    .id = "lora-expert-tp",
    .severity = Severity::kError,
    .title = "adapters on expert layers where experts are cut in another way than the rest",
    .explanation =
        "An adapter on a layer that is cut over ranks gathers over the group the layer is cut over. Where "
        "expert tensor parallelism differs from tensor parallelism, adapters on the experts' linear layers "
        "used the tensor-parallel group, whose members are in other expert groups, and hang.",
    .source = "public report Megatron-Bridge 1363",
    .check = check,
};

}  // namespace moetax::doctor
