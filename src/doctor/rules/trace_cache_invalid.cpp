#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const auto events = facts.log->of(LogKind::kTraceCache);
  if (events.size() < 2 && !(facts.model && !events.empty())) return;
  Finding& f = out.add(rule, "the order in which parameters are used changes from step to step");
  f.cause = "which experts are used depends on the data, so what was recorded in one step does not hold in the next.";
  f.evidence = {events.front()->at, events.back()->at};
  f.cost = cannot_price("a profile: parameters are fetched when needed instead of ahead");
  f.fix = "set_z3_leaf_modules(model, [MoEBlock])   # the whole block counts as one module";
  f.confidence = Confidence::kLikely;
}

}  // namespace

const Rule kTraceCacheInvalid = {
    .id = "trace-cache-invalid",
    .severity = Severity::kWarning,
    .title = "parameters are used in another order than in the step before",
    .explanation =
        "ZeRO-3 records in which order parameters are used, to fetch them ahead. A model whose experts depend "
        "on the data breaks the record in every step. That alone costs the prefetch; together with per-expert "
        "modules it comes before a hang.",
    .source = "public report DeepSpeed 5066",
    .check = check,
};

}  // namespace moetax::doctor
