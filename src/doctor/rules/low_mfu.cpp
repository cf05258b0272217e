#include <fmt/format.h>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const auto events = facts.log->of(LogKind::kThroughput);
  if (events.empty() || !facts.model || facts.model->active_elements <= 0 || !facts.gpu) return;
  if (facts.job.phase != Phase::kTraining) return;
  const LogEvent* last = nullptr;
  for (const LogEvent* event : events) {
    if (!event->numbers.empty()) last = event;
  }
  if (!last || facts.gpu->value.bf16_tflops <= 0) return;
  const double tflops = 6 * facts.model->active_elements * last->numbers[0] * 1e-12;
  const double share = tflops / facts.gpu->value.bf16_tflops;
  if (share > 0.2 || share < 1e-4) return;
  Finding& f = out.add(rule, fmt::format("{:.0f} tokens/s a GPU are {:.1f} % of what the {} could do", last->numbers[0],
                                         100 * share, facts.gpu->value.name));
  f.cause = fmt::format("6 x {:.2f} B parameters a token x {:.0f} tokens/s = {:.0f} of {:.0f} TFLOP/s.",
                        facts.model->active_elements * 1e-9, last->numbers[0], tflops, facts.gpu->value.bf16_tflops);
  f.evidence = {last->at, facts.model->at, facts.gpu->at};
  f.cost.text = fmt::format("at 40 % it would be {:.0f} tokens/s", last->numbers[0] * 0.4 / share);
  f.fix = "moetax analyze trace.json   # which part of the step is exchange, waiting, small products";
  f.confidence = Confidence::kLikely;
}

}  // namespace

const Rule kLowMfu = {
    .id = "low-mfu",
    .severity = Severity::kNote,
    .title = "throughput far below what the GPU could do",
    .explanation =
        "A token needs 6 FLOP for each parameter it uses in training, 2 in inference (attention scores left "
        "out). Tokens per second times that, over the GPU's dense bf16 rate, is the share reached. Good "
        "training of large mixtures reaches 20 to 45 %.",
    .source = "the usual count, arXiv:2001.08361; public reports Pai-Megatron-Patch 643, ArcticTraining 250",
    .check = check,
};

}  // namespace moetax::doctor
