#include <fmt/format.h>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

// Megatron: the coefficient counts only with a type that has a loss.
void megatron(const Facts& facts, const Rule& rule, Findings& out) {
  const Settings& s = facts.job.settings;
  const Settings::Names kType = {"moe_router_load_balancing_type"};
  const Settings::Names kCoefficient = {"moe_aux_loss_coeff"};
  const auto type = s.word(kType);
  const auto coefficient = s.number(kCoefficient);
  if (type != "none" || !coefficient || *coefficient == 0) return;
  Finding& f =
      out.add(rule, fmt::format("the balance loss with coefficient {:g} is switched off by type none", *coefficient));
  f.cause = "moe_router_load_balancing_type none computes no loss, whatever the coefficient says.";
  f.evidence = {s.find(kType)->at, s.find(kCoefficient)->at};
  f.cost =
      cannot_price("the expert load of a run (layer_id,expert_id,count): the loss buys balance only if there is none");
  f.fix = "--moe-router-load-balancing-type aux_loss   # or drop --moe-aux-loss-coeff, to say what is meant";
  f.confidence = Confidence::kCertain;
}

// Hugging Face: the loss is added only where the router's logits are asked for.
void hugging_face(const Facts& facts, const Rule& rule, Findings& out) {
  const Settings& s = facts.job.settings;
  const Settings::Names kCoefficient = {"router_aux_loss_coef", "aux_loss_coef", "moe_aux_loss_coef"};
  const auto coefficient = s.number(kCoefficient);
  const auto asked = s.flag({"output_router_logits"});
  const bool hf = facts.job.is("accelerate") || facts.job.is("deepspeed") || facts.job.is("axolotl") ||
                  facts.job.is("transformers");
  if (!hf || !coefficient || *coefficient == 0 || asked != false) return;
  Finding& f = out.add(rule, fmt::format("the balance loss with coefficient {:g} is never added", *coefficient));
  f.cause = "output_router_logits is off, and the model code adds the loss only where it is on.";
  f.evidence = {s.find(kCoefficient)->at, s.find({"output_router_logits"})->at};
  f.cost = cannot_price("the expert load of a run (layer_id,expert_id,count)");
  f.fix = "output_router_logits: true";
  f.confidence = Confidence::kCertain;
}

void check(const Facts& facts, const Rule& rule, Findings& out) {
  megatron(facts, rule, out);
  hugging_face(facts, rule, out);
}

}  // namespace

const Rule kAuxLossInert = {
    .id = "aux-loss-inert",
    .severity = Severity::kWarning,
    .title = "a balance loss that is configured and never computed",
    .explanation =
        "A coefficient alone switches nothing on. Megatron computes the loss of moe_router_load_balancing_type, and "
        "none has "
        "none; Hugging Face models add the auxiliary loss only with output_router_logits. Switching it on costs step "
        "time "
        "and can cost loss, so look at the load (max/mean of each layer) first.",
    .source = "public report Megatron-Bridge 947; the model code of transformers",
    .check = check,
};

}  // namespace moetax::doctor
