#include <fmt/format.h>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const Settings& s = facts.job.settings;
  const Settings::Names kOverlap = {"overlap_moe_expert_parallel_comm"};
  if (!s.on(kOverlap)) return;
  const Settings::Names kFull = {"recompute_granularity"}, kShared = {"moe_shared_expert_overlap"};
  const bool full = s.word(kFull) == "full", shared = s.on(kShared);
  if (!full && !shared) return;
  Finding& f = out.add(
      rule, fmt::format("overlapped exchange with {}", full ? "full recomputation" : "an overlapped shared expert"));
  f.cause = full ? "full recomputation runs the forward pass inside the backward pass that is to be interleaved."
                 : "both want the time of the exchange for themselves.";
  f.evidence = {s.where(kOverlap), s.where(full ? kFull : kShared)};
  f.cost.text = "does not run";
  f.fix = full ? "--recompute-granularity selective" : "drop --moe-shared-expert-overlap";
  f.confidence = Confidence::kCertain;
}

}  // namespace

const Rule kOverlapIncompatible = {
    .id = "overlap-incompatible",
    .severity = Severity::kError,
    .title = "overlapped exchange together with what excludes it",
    .explanation =
        "Overlapping the exchange with the computation of another micro-batch interleaves their forward and "
        "backward passes. Full recomputation, and overlapping the shared expert at the same time, want the "
        "same windows; the combination crashes or is refused. Without 1F1B interleaving there is nothing to "
        "overlap with.",
    .source = "public report Megatron-LM 1862; Megatron-Bridge documentation",
    .check = check,
};

}  // namespace moetax::doctor
