#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const JobFacts& job = facts.job;
  const Settings& s = job.settings;
  const Settings::Names kDrop = {"drop_tokens", "moe_drop_tokens", "moe_token_dropping"};
  if (!job.is("deepspeed") || !s.off(kDrop)) return;
  const bool several = (job.ep && job.ep->value > 1) || (job.world && job.world->value > 1) ||
                       (job.gpus_per_node && job.gpus_per_node->value > 1);
  if (!several) return;
  Finding& f = out.add(rule, "capacity is agreed on in every layer, and ranks must come alike");
  f.cause =
      "drop_tokens off makes the gate reduce the largest load over all ranks before each exchange, also with an "
      "expert-parallel size of 1.";
  f.evidence = {s.where(kDrop)};
  if (job.ep) f.evidence.push_back(job.ep->at);
  f.cost.text = "one more all-reduce a layer; the run stops where ranks have different numbers or lengths of batches";
  f.fix = "drop_tokens: true with a capacity factor, or pad every rank's batch to the same length";
  f.confidence = job.phase == Phase::kInference ? Confidence::kLikely : Confidence::kPossible;
}

}  // namespace

const Rule kDynamicCapacity = {
    .id = "dynamic-capacity",
    .severity = Severity::kWarning,
    .title = "capacity that follows each step's tokens",
    .explanation =
        "Without dropping, some gates size their buffers by the largest expert of the step, agreed on by an "
        "all-reduce over the ranks. Ranks that come with other sequence lengths, or come a different number "
        "of times, then exchange buffers of different size or wait for a reduction the others never enter; "
        "inference with one input a rank shows it at once. A fixed capacity, or padding all ranks to one "
        "length, avoids it.",
    .source = "public reports DeepSpeed 6809, 5794, 7141; MoE-LLaVA 65",
    .check = check,
};

}  // namespace moetax::doctor
