#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const JobFacts& job = facts.job;
  const Settings::Names kDrop = {"dataloader_drop_last", "drop_last"};
  if (!job.ep || job.ep->value < 2 || !job.settings.off(kDrop) || job.phase == Phase::kInference) return;
  Finding& f = out.add(rule, "the last batches are not dropped, and every forward is a collective");
  f.cause = "ranks whose last batch is missing do not enter the exchange.";
  f.evidence = {job.settings.where(kDrop), job.ep->at};
  f.cost.text = "nothing, if the sampler pads; otherwise the run stops at the end of an epoch";
  f.fix = "dataloader_drop_last: true";
  f.confidence = Confidence::kPossible;
}

}  // namespace

const Rule kUnevenLastBatch = {
    .id = "uneven-last-batch",
    .severity = Severity::kNote,
    .title = "the last batches may not reach every expert-parallel rank",
    .explanation =
        "With dataloader_drop_last off, the last batches of an epoch go to some ranks only unless the sampler "
        "pads. Expert-parallel ranks that have none do not enter the exchange in which the others wait.",
    .source = "public reports DeepSpeed 7141, 6634",
    .check = check,
};

}  // namespace moetax::doctor
