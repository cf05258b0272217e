#include <fmt/format.h>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const JobFacts& job = facts.job;
  if (!job.settings.on({"fmoefy"}) || !job.pp || job.pp->value < 2) return;
  Finding& f = out.add(rule, fmt::format("experts exchange over all ranks, across {} pipeline stages", job.pp->value));
  f.cause = "fmoefy exchanges over the world group; ranks of other stages are elsewhere in the program.";
  f.evidence = {job.settings.where({"fmoefy"}), job.pp->at};
  f.cost.text = "the run hangs in the first forward pass";
  f.fix = "--pipeline-model-parallel-size 1   # or fmoefy with the group of the stage (moe_group)";
  f.confidence = Confidence::kLikely;
}

}  // namespace

const Rule kPipelineWorldExchange = {
    .id = "pipeline-world-exchange",
    .severity = Severity::kError,
    .title = "an exchange over all ranks inside a pipeline",
    .explanation =
        "Pipeline stages run different layers at different times. An all-to-all whose group is the whole "
        "world needs the ranks of other stages, which never enter it. The group has to hold the ranks of one "
        "stage only.",
    .source = "public reports FastMoE 58, 82",
    .check = check,
};

}  // namespace moetax::doctor
