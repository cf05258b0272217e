#include <fmt/format.h>

#include "doctor/rules/rules.h"
#include "moetax/base/units.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const ModelFacts* model = facts.model;
  if (facts.job.phase != Phase::kTraining || !model || model->total_elements <= 0 || model->total_elements > 4e8)
    return;
  if (model->experts < 2 || model->hidden < 1 || model->inter < 1) return;
  Finding& f = out.add(rule, fmt::format("{:.0f} M parameters: fixed costs of a layer outweigh its experts",
                                         model->total_elements * 1e-6));
  f.cause = fmt::format(
      "an expert's three products are {} x {}; routing, sorting, launches and the exchange cost the same as "
      "in a large model.",
      model->hidden, model->inter);
  f.evidence = {model->at};
  const auto step = step_traffic(facts, 1);
  if (step && facts.gpu && facts.gpu->value.bf16_tflops > 0) {
    const double us = step->tokens * model->topk * 6.0 * static_cast<double>(model->hidden) *
                      static_cast<double>(model->inter) / (0.4 * facts.gpu->value.bf16_tflops * 1e6);
    f.cost.text = fmt::format(
        "the experts of a layer take about {} forward at 40 % of the {}'s peak; what is fixed, tens of "
        "microseconds, comes on top",
        units::time_text(us), facts.gpu->value.name);
  } else {
    f.cost = cannot_price("micro-batch, sequence length and the GPU");
  }
  f.fix = "compare with a larger model before drawing conclusions on speed; larger micro-batches, grouped products";
  f.confidence = Confidence::kLikely;
}

}  // namespace

const Rule kLayersTooSmall = {
    .id = "layers-too-small",
    .severity = Severity::kNote,
    .title = "a mixture so small that fixed costs dominate",
    .explanation =
        "Each layer of experts costs routing, sorting, several launches and an exchange, whatever its size: some tens "
        "of microseconds. A dense layer of the same FLOPs has one of them. Below a few hundred million parameters the "
        "fixed part is most of a layer, and a mixture trains at half a dense model's tokens per second; it is not a "
        "mistake of settings.",
    .source = "public report megablocks 57",
    .check = check,
};

}  // namespace moetax::doctor
