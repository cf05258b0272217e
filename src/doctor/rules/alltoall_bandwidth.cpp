#include <fmt/format.h>

#include "doctor/bandwidth.h"
#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  for (const BandwidthFacts& entry : facts.all_bandwidths()) {
    const auto run = run_of(entry);
    if (!run || run->collective != Collective::kAllToAll || run->nodes < 2) continue;
    const double over_link = run->busbw * (run->ranks - run->per_node) / (run->ranks - 1);
    const double link = facts.node_gbs();
    const double roof = link > 0 ? link * (run->ranks - 1) / (run->ranks - run->per_node) : 0;
    Finding& f = out.add(rule, roof > 0 ? fmt::format("all-to-all reaches {:.3g} of {:.3g} GB/s, {:.0f} % of its roof",
                                                      run->busbw, roof, 100 * run->busbw / roof)
                                        : fmt::format("busbw {:.3g} GB/s means {:.3g} GB/s over each GPU's adapter",
                                                      run->busbw, over_link));
    f.cause = fmt::format(
        "{} ranks, {} a node: of each rank's bytes {:.0f} % cross nodes; the roof is {:.3f} x the adapter's rate a "
        "GPU.",
        run->ranks, run->per_node, 100.0 * (run->ranks - run->per_node) / (run->ranks - 1),
        static_cast<double>(run->ranks - 1) / (run->ranks - run->per_node));
    f.evidence = {{entry.file, run->line, fmt::format("busbw {:.2f} GB/s", run->busbw)}};
    if (roof > 0 && run->busbw < 0.6 * roof) f.severity = Severity::kWarning;
    f.cost.text = roof > 0 ? fmt::format("an exchange takes {:.2f}x the time the adapters allow", roof / run->busbw)
                           : "cannot be priced without the adapters' rate (topology XML of NCCL, or machine.json)";
    f.fix = roof > 0 && run->busbw >= 0.6 * roof
                ? "nothing to do: spreading proxies over GPUs may bring a few percent"
                : "NCCL_DEBUG=INFO: NET/IB with GDRDMA on every rail? then pairs of nodes, rail by rail";
    f.confidence = Confidence::kCertain;
  }
}

}  // namespace

const Rule kAlltoallBandwidth = {
    .id = "alltoall-bandwidth",
    .severity = Severity::kNote,
    .title = "how much of the network an all-to-all reaches",
    .explanation =
        "nccl-tests' busbw of an all-to-all counts (n-1)/n of each rank's bytes, of which only (n-g)/(n-1) "
        "cross nodes (g GPUs a node). So its roof is B (n-1)/(n-g) for B GB/s of adapter a GPU: 1.875 B on "
        "two nodes of eight. What the adapters carry is busbw (n-g)/(n-1). Readings above the line rate of an "
        "adapter are no error, and 85 % of the roof is good.",
    .source = "public reports nccl-tests 130, 181, 267; NCCL 866, 1138",
    .check = check,
};

}  // namespace moetax::doctor
