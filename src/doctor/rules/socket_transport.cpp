#include <fmt/format.h>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  for (const NcclLogFacts& entry : facts.all_nccl_logs()) {
    const NcclEdge* first = nullptr;
    std::int64_t sockets = 0, others = 0;
    for (const NcclEdge& edge : entry.log.edges) {
      if (edge.transport != NcclTransport::kNet) continue;
      const bool socket = contains(edge.network, "socket");
      (socket ? sockets : others) += 1;
      if (socket && !first) first = &edge;
    }
    if (!first) continue;
    bool adapters = false;
    for (const NcclAdapter& adapter : entry.log.adapters)
      adapters = adapters || adapter.kind == "IB" || adapter.kind == "RoCE";
    for (const TopologyFacts& topology : facts.all_topologies()) adapters = adapters || topology.topology.nics() > 0;
    Finding& f =
        out.add(rule, fmt::format("{} of {} connections between nodes are sockets", sockets, sockets + others));
    f.severity = adapters ? Severity::kError : Severity::kWarning;
    f.cause = adapters ? "adapters are there and NCCL does not use them." : "NCCL found no adapter it can use.";
    f.evidence = {{entry.file, static_cast<int>(first->line),
                   fmt::format("{} -> {} via {}", first->from, first->to, first->via)}};
    f.cost = facts.job.ep_nodes() && *facts.job.ep_nodes() > 1
                 ? price_between_nodes(facts, *facts.job.ep_nodes())
                 : cannot_price("the EP size and the model's config.json");
    f.fix =
        "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET: why IB is not chosen; docker run --device=/dev/infiniband; unset "
        "NCCL_IB_DISABLE";
    f.confidence = adapters ? Confidence::kCertain : Confidence::kLikely;
    return;
  }
}

}  // namespace

const Rule kSocketTransport = {
    .id = "socket-transport",
    .severity = Severity::kError,
    .title = "traffic between nodes goes over sockets",
    .explanation =
        "NET/Socket in NCCL's connections means that ranks of different nodes exchange over TCP: a tenth of "
        "the bandwidth of InfiniBand or RoCE, and a core for each stream. \"Using network Socket\" alone says "
        "nothing: ranks of one node do not use it. Where adapters are there, the container lacks their "
        "devices, the plug-in is not found, or NCCL_IB_DISABLE is set.",
    .source = "public reports Tutel 160, NCCL 226; NCCL's documentation of troubleshooting",
    .check = check,
};

}  // namespace moetax::doctor
