#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const auto events = facts.log->of(LogKind::kDtypeMismatch);
  if (events.empty()) return;
  Finding& f = out.add(rule, "a product refuses operands of two types");
  f.cause =
      "weights and activations have different types: autocast does not cover this product, or the gate's weights were "
      "not converted with the rest.";
  f.evidence = {events.front()->at};
  f.cost.text = "the run ends here";
  f.fix =
      "hidden_states = hidden_states.to(self.experts.weight.dtype)   # at the entry of the MoE block, back at its end";
  f.confidence = Confidence::kLikely;
}

}  // namespace

const Rule kDtypeMismatch = {
    .id = "dtype-mismatch",
    .severity = Severity::kError,
    .title = "two types meet in a product of the experts",
    .explanation =
        "Autocast does not reach grouped products of experts: weights in bf16 meet activations in fp32 (or "
        "the other way round), and the kernel refuses. Casting at the border of the MoE block settles it.",
    .source = "public reports transformers 43828, Megatron-LM 669, DeepSpeed 5156",
    .check = check,
};

}  // namespace moetax::doctor
