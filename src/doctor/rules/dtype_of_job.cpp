#include <fmt/format.h>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const Settings& s = facts.job.settings;
  if (!facts.model || !contains(facts.model->dtype, "bfloat16")) return;
  const Settings::Names kHalf = {"fp16.enabled", "fp16"};
  const Settings::Names kWord = {"mixed_precision", "dtype", "wire_dtype", "dispatch_dtype", "a2a_dtype"};
  const auto word = s.word(kWord);
  const bool half = s.on(kHalf) || (word && (*word == "fp16" || *word == "float16" || *word == "half"));
  if (!half || s.word(kHalf) == "auto") return;
  const Settings::Names& names = s.on(kHalf) ? kHalf : kWord;
  Finding& f = out.add(rule, "a bf16 model runs in fp16");
  f.cause = fmt::format("{} was trained in bfloat16, whose range fp16 does not have.", facts.model->name);
  f.evidence = {s.where(names), facts.model->settings.where({"torch_dtype", "dtype"})};
  f.cost.text = "overflows, and a conversion at every border; the time cannot be priced without a profile";
  f.fix = "bf16 instead of fp16: --bf16, mixed_precision: bf16, \"bf16\": {\"enabled\": true}";
  f.confidence = Confidence::kCertain;
}

}  // namespace

const Rule kDtypeOfJob = {
    .id = "dtype-of-job",
    .severity = Severity::kWarning,
    .title = "a job in another 16-bit type than the model",
    .explanation =
        "A bf16 model trained or moved in fp16 overflows above 65504 and loses small gradients; every border "
        "between the two converts. One type for model, optimizer and wire avoids both.",
    .source =
        "claims about conversion cost are measured in moetax's wire formats; ranges are those of IEEE 754 and "
        "bfloat16",
    .check = check,
};

}  // namespace moetax::doctor
