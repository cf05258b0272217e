#include <fmt/format.h>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const JobFacts& job = facts.job;
  const Settings::Names kReplicas = {"sampler.num_replicas", "num_replicas", "eval_sampler.num_replicas",
                                     "data_world_size"};
  const auto replicas = job.settings.whole(kReplicas);
  if (!replicas || *replicas < 1 || !job.world || !job.ep || job.ep->value < 2) return;
  const int data = job.world->value / product({job.tp, job.pp, job.cp});
  if (data < 1 || *replicas == data || *replicas * job.ep->value != data) return;
  if (job.settings.on({"distributed_config.enable_expert_parallel", "hf_expert_parallel"})) return;
  Finding& f = out.add(rule, fmt::format("the data is split over {} ranks, {} bring tokens", *replicas, data));
  f.cause = fmt::format("the {} ranks of an expert group read the same tokens, and dispatch sends each of them.",
                        job.ep->value);
  f.evidence = {job.settings.where(kReplicas), job.ep->at, job.world->at};
  f.cost.share = 1.0 - 1.0 / job.ep->value;
  f.cost.text = fmt::format("{:.0f} % of the work is done for tokens that another rank has too", 100 * *f.cost.share);
  f.fix = fmt::format("num_replicas: {}", data);
  f.confidence = Confidence::kLikely;
}

}  // namespace

const Rule kSamplerEpKind = {
    .id = "sampler-ep-kind",
    .severity = Severity::kError,
    .title = "data split over another number of ranks than the exchange expects",
    .explanation =
        "Where tokens are dispatched, every rank of an expert-parallel group brings tokens of its own: the "
        "sampler's ranks are all data-parallel ones, expert groups included. Where tokens are replicated, all "
        "ranks of a group must read the same. A sampler made for the other kind computes every token several "
        "times, or drops tokens.",
    .source = "public report TransformerEngine 2642 (a review that took one kind for the other)",
    .check = check,
};

}  // namespace moetax::doctor
