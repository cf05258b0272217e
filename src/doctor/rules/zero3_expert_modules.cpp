#include <fmt/format.h>

#include "doctor/modules.h"
#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

// A stage that is said, or the name of a file that says it.
std::optional<Evidence> zero3(const Settings& s) {
  const Settings::Names kStage = {"zero_optimization.stage", "zero_stage"};
  if (const Setting* stage = s.find(kStage)) {
    return s.whole(kStage) == 3 ? std::optional(stage->at) : std::nullopt;
  }
  const Setting* file = s.find({"deepspeed", "deepspeed_config", "deepspeed_config_file"});
  if (!file) return std::nullopt;
  for (const std::string_view name : {"zero3", "zero_3", "z3", "stage3", "zero-3"}) {
    if (contains(file->value, name)) return file->at;
  }
  return std::nullopt;
}

bool has_leaf_modules(const Facts& facts) {
  const Settings& s = facts.job.settings;
  return facts.job.is("axolotl") ||  // sets them itself
         s.find({"leaf_module", "leaf_module.classes", "zero3_leaf_modules", "z3_leaf_modules", "leaf_modules",
                 "deepspeed_moe_layer_cls_names", "moe_layer_cls_names"});
}

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const ModelFacts* model = facts.model;
  const auto stage = zero3(facts.job.settings);
  if (!stage || !model || facts.job.phase == Phase::kInference || has_leaf_modules(facts)) return;
  const auto block = block_of_expert_modules(*model);
  if (!block) return;
  Finding& f =
      out.add(rule, fmt::format("ZeRO-3 over {} expert modules that not every rank uses",
                                model->moe_layers > 0 ? fmt::to_string(model->moe_layers * model->experts) : "the"));
  f.cause = fmt::format(
      "ZeRO-3 gathers and reduces parameters module by module as they are used. {} has {} experts a layer as modules "
      "of "
      "their own; a rank whose tokens choose others skips the gather of an expert that its peers wait in.",
      model->name, model->experts);
  f.evidence = {*stage, model->at};
  if (model->moe_layers > 0) {
    f.cost.text = fmt::format(
        "the run stops until the watchdog ends it; {} layers x {} experts = {} modules ({} linear layers) "
        "whose hooks also slow the start",
        model->moe_layers, model->experts, model->moe_layers * model->experts, 3 * model->moe_layers * model->experts);
  } else {
    f.cost.text = "the run stops until the watchdog ends it";
  }
  f.fix = fmt::format(
      "from deepspeed.utils import set_z3_leaf_modules; set_z3_leaf_modules(model, [{}])   # before "
      "deepspeed.initialize; "
      "accelerate: deepspeed_moe_layer_cls_names: {}",
      *block, *block);
  f.confidence = model->settings.empty() ? Confidence::kPossible : Confidence::kLikely;
}

}  // namespace

const Rule kZero3ExpertModules = {
    .id = "zero3-expert-modules",
    .severity = Severity::kError,
    .title = "ZeRO-3 over per-expert modules whose use depends on the data",
    .explanation =
        "DeepSpeed's ZeRO-3 issues one collective for each module when it is used. With every expert a module of its "
        "own, "
        "which of them a rank uses depends on its tokens: ranks leave lock-step, each waits in a gather of another "
        "parameter, and the NCCL watchdog ends the run after its time-out, often only after some hundred steps. A leaf "
        "module makes DeepSpeed gather the whole MoE block at once, whichever experts are used. Experts packed into "
        "one "
        "tensor (grouped products) have no such modules and start much faster. Neither NCCL_P2P_LEVEL nor a longer "
        "time-out changes anything.",
    .source =
        "public reports DeepSpeed 5066, 4808, 4966, 5008; LLaMA-Factory 2315, 3237; transformers 39275; Qwen3-Omni 115",
    .check = check,
};

}  // namespace moetax::doctor
