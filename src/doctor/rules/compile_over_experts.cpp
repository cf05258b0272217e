#include <fmt/format.h>

#include "doctor/modules.h"
#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const Settings& s = facts.job.settings;
  const Settings::Names kCompile = {"torch_compile", "compile_model"};
  if (!s.on(kCompile) || !facts.model || !block_of_expert_modules(*facts.model)) return;
  if (facts.job.is("megatron") || facts.job.phase == Phase::kInference) return;
  Finding& f = out.add(rule, fmt::format("torch.compile over {} experts a layer", facts.model->experts));
  f.cause = "each expert's number of rows is another in each step: graphs break or are compiled again.";
  f.evidence = {s.where(kCompile), facts.model->at};
  f.cost = cannot_price("a log with TORCH_LOGS=recompiles");
  f.fix = "torch.compiler.disable on the MoE block, or torch_compile: false";
  f.confidence = Confidence::kLikely;
}

}  // namespace

const Rule kCompileOverExperts = {
    .id = "compile-over-experts",
    .severity = Severity::kWarning,
    .title = "whole-graph compilation over experts with data-dependent shapes",
    .explanation =
        "Rows of an expert change from step to step. A compiled graph over per-expert modules breaks at each "
        "of them or is compiled again for each new shape; with fullgraph it is refused. Compile attention, "
        "and leave the MoE block out or use a version with grouped products.",
    .source = "documentation of torch.compile; mission of the doctor: misplaced modules",
    .check = check,
};

}  // namespace moetax::doctor
