#include <fmt/format.h>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  for (const NcclLogFacts& entry : facts.all_nccl_logs()) {
    const NcclEdge *shared = nullptr, *direct = nullptr;
    for (const NcclEdge& edge : entry.log.edges) {
      if (edge.transport == NcclTransport::kShm && !shared) shared = &edge;
      if (edge.transport == NcclTransport::kP2p && !direct) direct = &edge;
    }
    if (!shared || !direct) continue;
    Finding& f =
        out.add(rule, fmt::format("ranks {} and {} exchange through the host's memory", shared->from, shared->to));
    f.cause =
        fmt::format("others are linked directly ({} -> {}): these two are a socket apart.", direct->from, direct->to);
    f.evidence = {{entry.file, static_cast<int>(shared->line),
                   fmt::format("{} -> {} via {}", shared->from, shared->to, shared->via)},
                  {entry.file, static_cast<int>(direct->line),
                   fmt::format("{} -> {} via {}", direct->from, direct->to, direct->via)}};
    f.cost = cannot_price("nvidia-smi topo -m and alltoall_perf");
    f.fix = "EP groups of the GPUs that are linked directly; NCCL_P2P_LEVEL=SYS to try direct copies across sockets";
    f.confidence = Confidence::kCertain;
    return;
  }
}

}  // namespace

const Rule kShmBetweenGpus = {
    .id = "shm-between-gpus",
    .severity = Severity::kNote,
    .title = "some GPUs of a node exchange through the host's memory",
    .explanation =
        "NCCL links GPUs of a node directly where it may (P2P) and through the host's memory (SHM) where it "
        "may not: across sockets, or where direct access is switched off. An exchange among all GPUs of the "
        "node is as fast as its slowest pairs.",
    .source = "public report NCCL 1027",
    .check = check,
};

}  // namespace moetax::doctor
