#include <fmt/format.h>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const JobFacts& job = facts.job;
  const Settings::Names kProvider = {"FI_PROVIDER"};
  if (job.settings.word(kProvider) != "efa" || !job.dispatcher || job.phase == Phase::kInference) return;
  const std::string& name = job.dispatcher->value;
  if (name != "deepep" && name != "uccl" && name != "nvshmem") return;
  if (!job.nodes || job.nodes->value < 2) return;
  Finding& f = out.add(rule, fmt::format("{} over EFA goes through a proxy on the host", name));
  f.cause = "EFA cannot be driven by the GPU.";
  f.evidence = {job.settings.where(kProvider), job.dispatcher->at};
  f.cost.text = "7 to 72 % of a step at EP 16 on 8 nodes, more at EP 32 (reported); measure here";
  f.fix = "--moe-token-dispatcher-type alltoall   # NCCL with the aws-ofi plugin";
  f.confidence = Confidence::kPossible;
}

}  // namespace

const Rule kEfaBackend = {
    .id = "efa-backend",
    .severity = Severity::kWarning,
    .title = "a GPU-initiated backend on a network that needs a CPU proxy",
    .explanation =
        "EFA has no GPU-initiated sends; backends that need them run through a proxy on the host. On eight "
        "nodes with it a training step took 7 to 72 % longer at EP 16, and 86 to 187 % at EP 32, than with "
        "NCCL's all-to-all.",
    .source = "public report awsome-distributed-ai 1144",
    .check = check,
};

}  // namespace moetax::doctor
