#include <fmt/format.h>

#include "doctor/bandwidth.h"
#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  for (const BandwidthFacts& first : facts.all_bandwidths()) {
    const auto exchange = run_of(first);
    if (!exchange || exchange->collective != Collective::kAllToAll) continue;
    for (const BandwidthFacts& second : facts.all_bandwidths()) {
      const auto reduce = run_of(second);
      if (!reduce || reduce->collective != Collective::kAllReduce || reduce->ranks != exchange->ranks) continue;
      const int n = exchange->ranks, g = exchange->per_node;
      // A ring keeps all g adapters of a node busy; inside a node the same links serve both.
      const double could = exchange->nodes > 1 ? reduce->busbw / g * (n - 1) / (n - g) : reduce->busbw;
      if (exchange->busbw > 0.5 * could) continue;
      Finding& f =
          out.add(rule, fmt::format("all-to-all reaches {:.3g} GB/s where all-reduce shows that {:.3g} are there",
                                    exchange->busbw, could));
      f.cause = exchange->nodes > 1 ? "the links are sound; traffic to many peers collides on its way."
                                    : "the links are sound; direct copies to all peers at once are slower than a ring.";
      f.evidence = {{first.file, exchange->line, fmt::format("all-to-all, busbw {:.2f} GB/s", exchange->busbw)},
                    {second.file, reduce->line, fmt::format("all-reduce, busbw {:.2f} GB/s", reduce->busbw)}};
      f.cost.text = fmt::format("{:.1f}x the time of every exchange", could / exchange->busbw);
      f.fix = exchange->nodes > 1
                  ? "export NCCL_IB_ADAPTIVE_ROUTING=1 NCCL_IB_QPS_PER_CONNECTION=4; pairs of nodes rail by rail"
                  : "NCCL_P2P_DISABLE=1 alltoall_perf to compare: on some root complexes the host is faster";
      f.confidence = Confidence::kLikely;
      return;
    }
  }
}

}  // namespace

const Rule kAlltoallBelowAllreduce = {
    .id = "alltoall-below-allreduce",
    .severity = Severity::kWarning,
    .title = "all-reduce is at its roof and all-to-all far below",
    .explanation =
        "Both cross the same adapters. A ring of all-reduce has two neighbours, an all-to-all every other "
        "rank: where only the second is slow, the links are sound and the paths are not: routes that collide, "
        "rails that are crossed, too few queue pairs. From all-reduce's bandwidth over g adapters of a node "
        "follows what an all-to-all could reach.",
    .source = "public reports NCCL 1531, 1697, 1792; open-gpu-kernel-modules 17",
    .check = check,
};

}  // namespace moetax::doctor
