#include <fmt/format.h>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const JobFacts& job = facts.job;
  const Settings::Names kMapping = {"NVSHMEM_ENABLE_NIC_PE_MAPPING"};
  if (!job.settings.on(kMapping)) return;
  if (job.dispatcher && job.dispatcher->value != "deepep") return;
  if (job.nodes && job.nodes->value < 2) return;
  Finding& f = out.add(rule, "NVSHMEM_ENABLE_NIC_PE_MAPPING may put all ranks of a node on one adapter");
  f.cause = "with DeepEP's high-throughput kernels each process looks like the first of its node.";
  f.evidence = {job.settings.where(kMapping)};
  const int ranks = job.gpus_per_node ? job.gpus_per_node->value : 0;
  f.cost.text = ranks > 1 ? fmt::format("up to {}x less bandwidth between nodes: {} ranks on one adapter", ranks, ranks)
                          : "cannot be priced without the number of GPUs a node";
  f.fix = "unset NVSHMEM_ENABLE_NIC_PE_MAPPING   # and compare the adapters' names on each node: they may differ";
  f.confidence = job.dispatcher ? Confidence::kLikely : Confidence::kPossible;
}

}  // namespace

const Rule kNvshmemNicMapping = {
    .id = "nvshmem-nic-mapping",
    .severity = Severity::kWarning,
    .title = "a NIC mapping that puts every rank on the first adapter",
    .explanation =
        "NVSHMEM_ENABLE_NIC_PE_MAPPING assigns adapters by the order of processes on a node. The start-up of "
        "DeepEP's high-throughput kernels makes one process see one GPU, so all of them count as the first "
        "and share its adapter.",
    .source = "public report DeepEP 336",
    .check = check,
};

}  // namespace moetax::doctor
