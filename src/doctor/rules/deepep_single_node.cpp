#include <fmt/format.h>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const JobFacts& job = facts.job;
  if (!job.dispatcher || job.dispatcher->value != "deepep" || !job.ep || job.ep->value > 8) return;
  const auto nodes = job.ep_nodes();
  if (!nodes || *nodes != 1) return;
  Finding& f = out.add(rule, fmt::format("DeepEP for an exchange of {} GPUs of one node", job.ep->value));
  f.cause = "nothing crosses nodes here; the plain dispatchers do the same over NVLink.";
  f.evidence = {job.dispatcher->at, job.ep->at};
  f.cost = cannot_price("a run with each");
  f.fix = job.is("megatron") ? "--moe-token-dispatcher-type alltoall   # or allgather"
                             : "--moe-a2a-backend none   # measure both";
  f.confidence = Confidence::kLikely;
}

}  // namespace

const Rule kDeepepSingleNode = {
    .id = "deepep-single-node",
    .severity = Severity::kNote,
    .title = "a backend for many nodes inside one",
    .explanation =
        "Inside one node NCCL's all-to-all or all-gather dispatcher is as fast or faster up to EP 8, and "
        "takes no SMs and buffers of its own. DeepEP's gains begin where traffic crosses nodes and top-k is "
        "large.",
    .source = "public reports Megatron-LM 1456, sglang 23896",
    .check = check,
};

}  // namespace moetax::doctor
