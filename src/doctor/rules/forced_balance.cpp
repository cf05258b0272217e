#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const Settings& s = facts.job.settings;
  const Settings::Names kFlags = {"moe_router_force_load_balancing", "debug_force_load_balance",
                                  "VLLM_MOE_ROUTING_SIMULATION_STRATEGY", "force_load_balance"};
  if (!s.on(kFlags)) return;
  Finding& f = out.add(rule, "the router's choice is replaced by an even one");
  f.cause = "a flag for benchmarks is on.";
  f.evidence = {s.where(kFlags)};
  f.cost.text = "the model computes something else; measured times hold for even load only";
  f.fix = "drop " + s.find(kFlags)->key + " for real runs";
  f.confidence = Confidence::kCertain;
}

}  // namespace

const Rule kForcedBalance = {
    .id = "forced-balance",
    .severity = Severity::kWarning,
    .title = "routing that is forced to be even",
    .explanation =
        "A flag for benchmarks replaces the router's choice by an even one. Speed measured with it says "
        "nothing about real routing (dispatch alone differed threefold in one comparison), and training with "
        "it trains no router.",
    .source = "public reports Megatron-LM 6757, 7488",
    .check = check,
};

}  // namespace moetax::doctor
