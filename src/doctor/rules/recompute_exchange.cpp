#include <fmt/format.h>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const JobFacts& job = facts.job;
  const Settings& s = job.settings;
  if (!job.ep || job.ep->value < 2 || !facts.model) return;
  const Settings::Names kFlags = {"activation_checkpointing", "activation_checkpointing.enabled",
                                  "gradient_checkpointing"};
  const Settings::Names kSaved = {"ignore_router_for_ac"};
  const bool re_routes = job.is("automodel") || s.find({"dtensor_cfg.enabled"}) ||
                         s.find({"policy.dtensor_cfg.activation_checkpointing"}) || s.on(kSaved);
  if (!s.on(kFlags) || !re_routes) return;
  Finding& f = out.add(rule, fmt::format("blocks are recomputed with their exchange over {} ranks", job.ep->value));
  f.cause = s.on(kSaved) ? "ignore_router_for_ac leaves the router's output out of what is saved."
                         : "the framework recomputes the router with the block.";
  f.evidence = {s.where(kFlags), job.ep->at};
  if (s.find(kSaved)) f.evidence.push_back(s.where(kSaved));
  f.cost.text = "one exchange and one routing more in each backward pass; an error when one token goes elsewhere";
  f.fix = s.on(kSaved) ? "ignore_router_for_ac: false"
                       : "activation_checkpointing: false for the MoE blocks, or a selective policy that saves top-k";
  f.confidence = Confidence::kLikely;
}

}  // namespace

const Rule kRecomputeExchange = {
    .id = "recompute-exchange",
    .severity = Severity::kWarning,
    .title = "recomputation over an expert-parallel exchange in a framework that routes again",
    .explanation =
        "Recomputing a block that holds the router and the exchange runs both a second time. Where the "
        "framework does not save the choice, a near tie falls to the other side and shapes differ by some "
        "rows; some frameworks refuse the combination. Recompute attention only, or save the router's output "
        "and the dispatch's layout.",
    .source = "public reports NeMo-RL 3108, Automodel 2635",
    .check = check,
};

}  // namespace moetax::doctor
