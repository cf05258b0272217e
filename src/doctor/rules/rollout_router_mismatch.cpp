#include <fmt/format.h>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const JobFacts& job = facts.job;
  const Settings& s = job.settings;
  const Settings::Names kEngine = {"rollout.name", "generation.backend", "vllm_mode", "use_vllm"};
  const auto engine = s.word(kEngine);
  if (!engine || *engine == "hf" || !s.on(kEngine) || !facts.model) return;
  if (!job.is("verl") && !job.is("openrlhf") && !s.find({"policy.generation.backend", "use_vllm"})) return;
  if (s.find({"router_replay", "router_replay.mode", "enable_routing_replay", "routing_replay",
              "enable_rollout_routing_replay"}))
    return;
  Finding& f = out.add(rule, fmt::format("rollout by {} and training choose experts independently", *engine));
  f.cause = fmt::format("{} experts, top-{}: near ties fall differently in two sets of kernels.", facts.model->experts,
                        facts.model->topk);
  f.evidence = {s.where(kEngine), facts.model->at};
  f.cost.text = "no time; about 10 % of router calls differ (reported), rewards may collapse";
  f.fix = job.is("verl") ? "actor_rollout_ref.actor.router_replay.mode=R3"
                         : "record top-k ids in the rollout and replay them in training";
  f.confidence = Confidence::kLikely;
}

}  // namespace

const Rule kRolloutRouterMismatch = {
    .id = "rollout-router-mismatch",
    .severity = Severity::kWarning,
    .title = "rollout and training engines that route on their own",
    .explanation =
        "Two engines with the same weights choose other experts in about one of ten router calls, because "
        "their kernels round differently; nearly every token differs in some layer. Importance ratios "
        "computed from it are wrong, and runs without replaying the rollout's choice have collapsed. Replay "
        "the routing of the rollout in training.",
    .source = "public report Megatron-LM 4168; Rollout Routing Replay, arXiv:2510.11370",
    .check = check,
};

}  // namespace moetax::doctor
