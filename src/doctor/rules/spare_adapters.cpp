#include <fmt/format.h>

#include "doctor/rules/rules.h"
#include "moetax/machine/topology_facts.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  if (facts.job.settings.find({"NCCL_IB_HCA"})) return;
  if (facts.job.nodes && facts.job.nodes->value == 1) return;
  for (const TopologyFacts& entry : facts.all_topologies()) {
    const Topology& topology = entry.topology;
    if (topology.nics() == 0 || topology.gpus() == 0 || topology.unknown_gpu_pairs() > 0) continue;
    const NicPairing pairing = pair_nics(topology);
    std::string far;
    int count = 0;
    for (int i = 0; i < topology.nics(); ++i) {
      if (pairing.roles[static_cast<std::size_t>(i)] != NicRole::kFar) continue;
      if (count++ > 0) far += ", ";
      far += topology.device(topology.gpus() + i).name;
    }
    // Many far ones belong to GPUs that this process does not see.
    if (count == 0 || 2 * count > topology.nics() - count) continue;
    Finding& f = out.add(rule, fmt::format("{} should carry no GPU traffic", far));
    f.cause = "it is a socket away from every GPU; every GPU has a nearer adapter.";
    f.evidence = {{entry.file, topology.line(), far}};
    f.cost = cannot_price("a log of NCCL_DEBUG=INFO: whether it is used");
    const EnvironmentLines lines = environment_lines(topology, 0);
    f.fix = lines.lines.empty() ? "ibdev2netdev names the adapters; export NCCL_IB_HCA=^ADAPTER with that of " + far
                                : "export " + lines.lines.back();
    f.confidence = Confidence::kLikely;
    return;
  }
}

}  // namespace

const Rule kSpareAdapters = {
    .id = "spare-adapters",
    .severity = Severity::kNote,
    .title = "adapters that no GPU is near to",
    .explanation =
        "An adapter that is a socket away from every GPU is there for management or storage. NCCL may use it "
        "all the same, and the ranks it serves are then the slowest. Naming the others keeps it out.",
    .source = "topologies in public report NCCL 1453",
    .check = check,
};

}  // namespace moetax::doctor
