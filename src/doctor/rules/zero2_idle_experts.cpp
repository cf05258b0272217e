#include <fmt/format.h>

#include "doctor/modules.h"
#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const Settings& s = facts.job.settings;
  const Settings::Names kStage = {"zero_optimization.stage", "zero_stage"};
  if (s.whole(kStage) != 2 || !facts.model || !block_of_expert_modules(*facts.model)) return;
  if (facts.job.ep && facts.job.ep->value > 1) return;  // experts of other ranks are not this rank's parameters
  Finding& f = out.add(rule, "ZeRO-2 over experts that a rank may not use in a step");
  f.cause = fmt::format("{} has {} experts a layer; a rank without tokens for one has no gradient to reduce for it.",
                        facts.model->name, facts.model->experts);
  f.evidence = {s.where(kStage), facts.model->at};
  f.cost.text = "nothing while it runs; a run that stops on some ranks only, if it does";
  f.fix = "add 0 * sum(expert parameters) to the loss, or use a version of the model with packed experts";
  f.confidence = Confidence::kPossible;
}

}  // namespace

const Rule kZero2IdleExperts = {
    .id = "zero2-idle-experts",
    .severity = Severity::kNote,
    .title = "ZeRO-2 where some ranks have no gradient for some experts",
    .explanation =
        "ZeRO-2 reduces gradients in buckets as they become ready. A rank whose tokens missed an expert has "
        "no gradient for it, and hooks that count on every parameter may wait or fill buckets in another "
        "order. Most runs work; those that hang do so on some ranks only, and only with experts. Giving idle "
        "experts a contribution of zero, or packing experts into one tensor, removes the difference.",
    .source = "public reports OpenRLHF 1063, trl 4204",
    .check = check,
};

}  // namespace moetax::doctor
