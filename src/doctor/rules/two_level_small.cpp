#include <fmt/format.h>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const JobFacts& job = facts.job;
  const Settings::Names kTwo = {"use_2dh", "a2a_2dh", "use_2dh_a2a"};
  if (!job.settings.on(kTwo) || !job.world || job.world->value >= 256) return;
  Finding& f = out.add(rule, fmt::format("a two-dimensional exchange over {} GPUs", job.world->value));
  f.cause = "every row is sent twice, and messages are large enough without.";
  f.evidence = {job.settings.where(kTwo), job.world->at};
  f.cost = cannot_price("a run with each");
  f.fix = "drop --use_2dh";
  f.confidence = Confidence::kLikely;
}

}  // namespace

const Rule kTwoLevelSmall = {
    .id = "two-level-small",
    .severity = Severity::kWarning,
    .title = "a two-dimensional exchange on few GPUs",
    .explanation =
        "The two-dimensional all-to-all sends everything twice, first inside the node, to make messages "
        "between nodes larger. That pays off when messages would be tiny, on hundreds of GPUs; below about "
        "256 the plain exchange is faster.",
    .source = "public report Tutel 214",
    .check = check,
};

}  // namespace moetax::doctor
