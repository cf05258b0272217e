#include <fmt/format.h>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const JobFacts& job = facts.job;
  if (!job.dispatcher || !job.ep || job.phase != Phase::kTraining) return;
  const std::string& name = job.dispatcher->value;
  if (name != "torch" && name != "allgather") return;
  const int topk = facts.model ? facts.model->topk : 0;
  if (topk < 1 || job.ep->value <= topk || job.ep->value < 8) return;
  Finding& f = out.add(rule, fmt::format("every token goes to all {} ranks, {} would do", job.ep->value, topk));
  f.cause = fmt::format("dispatcher {} gathers; a token is needed by at most K={} ranks.", name, topk);
  f.evidence = {job.dispatcher->at, job.ep->at};
  f.cost.text = fmt::format("{:.1f}x the rows of an all-to-all", static_cast<double>(job.ep->value) / topk);
  f.fix = job.is("megatron") ? "--moe-token-dispatcher-type alltoall" : "dispatcher: deepep";
  f.confidence = Confidence::kLikely;
}

}  // namespace

const Rule kDispatcherAllgather = {
    .id = "dispatcher-allgather",
    .severity = Severity::kNote,
    .title = "an exchange that gathers every token on every rank",
    .explanation =
        "A dispatcher made of all-gathers brings all tokens of the group to every rank, R/K times the rows an "
        "all-to-all brings, and synchronises with the host in each layer. One training job went from 15.7 to "
        "10.5 s a step by changing it.",
    .source = "public reports Automodel 3654, torchtitan (NousResearch) 19",
    .check = check,
};

}  // namespace moetax::doctor
