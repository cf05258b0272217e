#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const auto events = facts.log->of(LogKind::kDefaultMoeConfig);
  if (events.empty()) return;
  Finding& f = out.add(rule, "the expert kernel has no tuned sizes for this GPU and shape");
  f.cause = "no table for this combination of experts, width and device.";
  f.evidence = {events.front()->at};
  f.cost.text = "3 to 11 % of the expert kernel, near 0 end to end (reported)";
  f.fix = "python benchmarks/kernels/benchmark_moe.py --model MODEL --tp-size N --tune   # then compare end to end";
  f.confidence = Confidence::kCertain;
}

}  // namespace

const Rule kDefaultMoeConfig = {
    .id = "default-moe-config",
    .severity = Severity::kNote,
    .title = "expert kernels without sizes tuned for this GPU",
    .explanation =
        "vLLM's fused kernel has tables of tile sizes for GPUs and shapes; without one it says so and uses a "
        "default. Tuning brought 3.5 % of the kernel on one GPU and nothing end to end, up to 11 % elsewhere: "
        "worth little unless the kernel is most of the step. At small batches another kernel altogether may "
        "be the right one.",
    .source = "public reports vLLM 17619, 52192; InferenceX 454",
    .check = check,
};

}  // namespace moetax::doctor
