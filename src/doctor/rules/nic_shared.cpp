#include <fmt/format.h>

#include "doctor/rules/rules.h"
#include "moetax/machine/topology_facts.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const JobFacts& job = facts.job;
  const auto nodes = job.ep_nodes();
  if (!nodes || *nodes < 2) return;
  for (const TopologyFacts& entry : facts.all_topologies()) {
    const Topology& topology = entry.topology;
    if (topology.nics() == 0 || topology.gpus() < 2) continue;
    const NicPairing pairing = pair_nics(topology);
    if (pairing.most_gpus_per_nic < 2) continue;
    Finding& f = out.add(rule, fmt::format("{} GPUs share an adapter", pairing.most_gpus_per_nic));
    f.cause = fmt::format("{} adapters for {} GPUs, and EP groups reach over {} nodes.", topology.nics(),
                          topology.gpus(), *nodes);
    f.evidence = {{entry.file, topology.line(), fmt::format("{} GPUs, {} adapters", topology.gpus(), topology.nics())},
                  job.ep->at};
    f.cost = price_between_nodes(facts, *nodes);
    f.fix = job.gpus_per_node
                ? fmt::format("EP {}: the exchange inside a node; or an exchange with one copy of a token per node",
                              job.gpus_per_node->value)
                : "EP groups inside a node; or an exchange with one copy of a token per node";
    f.confidence = Confidence::kLikely;
    return;
  }
}

}  // namespace

const Rule kNicShared = {
    .id = "nic-shared",
    .severity = Severity::kWarning,
    .title = "several GPUs share one adapter",
    .explanation =
        "What each rank can send to other nodes is the adapter's rate divided by the GPUs it serves. Expert "
        "exchange between nodes is bound by exactly this; with one adapter for eight GPUs a 100 Gb/s port "
        "leaves 1.6 GB/s a GPU.",
    .source = "public reports Tutel 160, DeepEP 336; nccl-tests 130 for the bound",
    .check = check,
};

}  // namespace moetax::doctor
