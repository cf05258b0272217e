#include <fmt/format.h>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const JobFacts& job = facts.job;
  const Settings::Names kFlag = {"distributed_config.enable_expert_parallel", "hf_expert_parallel"};
  if (!job.settings.on(kFlag) || job.is("vllm")) return;
  Finding& f = out.add(rule, "all ranks of an expert-parallel group compute the same tokens");
  f.cause = "Hugging Face's expert parallelism shards the experts and replicates the rest.";
  f.evidence = {job.settings.where(kFlag)};
  const int ranks = job.world ? job.world->value : job.gpus_per_node ? job.gpus_per_node->value : 0;
  f.cost.text = ranks > 1 ? fmt::format("attention and router are computed {} times", ranks)
                          : "cannot be priced without the number of ranks";
  f.fix = "an engine that dispatches tokens (Megatron, torchtitan, vLLM with data parallelism), or smaller groups";
  f.confidence = Confidence::kLikely;
}

}  // namespace

const Rule kReplicatedEp = {
    .id = "replicated-ep",
    .severity = Severity::kNote,
    .title = "expert parallelism that replicates the tokens",
    .explanation =
        "In this form every rank of the group has the same tokens, computes its own experts and sums by an "
        "all-reduce. Attention does not become cheaper with more ranks and the all-reduce grows, so "
        "utilisation falls each time the group doubles. Dispatch and combine split the tokens instead.",
    .source = "public report transformers 45436",
    .check = check,
};

}  // namespace moetax::doctor
