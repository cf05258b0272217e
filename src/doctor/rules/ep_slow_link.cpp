#include <fmt/format.h>

#include "doctor/rules/rules.h"
#include "moetax/machine/topology_facts.h"

namespace moetax::doctor {
namespace {

// Of the groups that consecutive ranks make, against the best choice of the same size and the largest that stays fast.
void check(const Facts& facts, const Rule& rule, Findings& out) {
  const auto span = facts.job.ep_span();
  if (!span || *span < 2) return;
  for (const TopologyFacts& entry : facts.all_topologies()) {
    const Topology& topology = entry.topology;
    if (*span > topology.gpus()) continue;
    const Link is = slowest_link(consecutive_ep_groups(topology, *span));
    const Link fastest = topology.fastest();
    if (is.kind == LinkKind::kUnknown || is.kind == fastest.kind) continue;
    const Link best = slowest_link(best_ep_groups(topology, *span));
    int fits = 1;
    for (const int size : ep_sizes(topology)) {
      if (size < *span && slowest_link(best_ep_groups(topology, size)).kind == fastest.kind) fits = size;
    }
    Finding& f = out.add(rule, fmt::format("EP groups of {} cross {}, the fastest link is {}", *span, link_text(is),
                                           link_text(fastest)));
    f.cause = slower(is, best)
                  ? fmt::format("consecutive ranks meet over {}; another order of GPUs would need only {}.",
                                link_text(is), link_text(best))
                  : fmt::format("no {} GPUs of this machine are all linked by {}.", *span, link_text(fastest));
    f.evidence = {facts.job.ep->at,
                  {entry.file, topology.line(), fmt::format("slowest pair of a group: {}", link_text(is))}};
    f.cost = is.gbs > 0 && fastest.gbs > 0
                 ? Cost{fmt::format("{:.0f} GB/s instead of {:.0f}: {:.1f}x the time of every exchange", is.gbs,
                                    fastest.gbs, fastest.gbs / is.gbs),
                        {},
                        {},
                        {}}
                 : cannot_price("the rates of these links (moetax calibrate, or alltoall_perf)");
    const EnvironmentLines lines = environment_lines(topology, *span);
    if (slower(is, best) && !lines.lines.empty()) {
      f.fix = "export " + lines.lines.front();
    } else {
      f.fix = fits > 1 ? fmt::format("EP {} with as much more data parallelism", fits) : "expert parallelism of 1";
    }
    f.confidence = Confidence::kCertain;
    return;
  }
}

}  // namespace

const Rule kEpSlowLink = {
    .id = "ep-slow-link",
    .severity = Severity::kWarning,
    .title = "EP groups over the slow links of a machine",
    .explanation =
        "GPUs of a machine are not all equally near. A group that reaches over the interconnect of two "
        "sockets, or host bridges, exchanges at that link's rate in every layer, where another choice of "
        "GPUs, or smaller groups, would stay on the fastest links.",
    .source = "topologies in public reports: NCCL 1608, axolotl 536, vLLM 19607",
    .check = check,
};

}  // namespace moetax::doctor
