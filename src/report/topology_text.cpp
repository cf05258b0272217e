#include "moetax/report/topology_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "moetax/machine/topology_facts.h"
#include "report/format.h"
#include "report/table.h"

namespace moetax {
namespace {

using report::Align;
using report::join;
using report::plural;
using report::wrap;

constexpr std::size_t kMostSkipped = 10;

std::string label(const Device& device) {
  std::string text = device.name;
  if (!device.adapter.empty() && device.adapter != device.name) text += fmt::format(" ({})", device.adapter);
  return text;
}

// "0-3,6": the numbers the machine's tools have for these GPUs.
std::string ranges(const Topology& topology, const std::vector<int>& gpus) {
  std::string text;
  for (std::size_t i = 0; i < gpus.size();) {
    const int first = topology.device(gpus[i]).index;
    std::size_t end = i + 1;
    while (end < gpus.size() && topology.device(gpus[end]).index == first + static_cast<int>(end - i)) ++end;
    if (!text.empty()) text += ",";
    text += end - i > 2 ? fmt::format("{}-{}", first, first + static_cast<int>(end - i) - 1) : std::to_string(first);
    i += end - i > 2 ? end - i : 1;
  }
  return text;
}

std::string with_bandwidth(const Link& link) {
  return link.gbs > 0 ? fmt::format("{}, {} GB/s each way", link_text(link), report::digits3(link.gbs))
                      : link_text(link);
}

// "GPU0 --PIX-- NIC8", the adapter it is paired with first, those as near behind it.
std::string nearest_text(const Topology& topology, const GpuNics& nics) {
  std::string text = topology.device(nics.gpu).name;
  if (nics.nic < 0) return text;
  const Device& nic = topology.device(nics.nic);
  text += fmt::format(" --{}-- {}", link_text(nics.link), label(nic));
  if (nic.gbs > 0) text += fmt::format(", {} GB/s", report::digits3(nic.gbs));
  std::vector<std::string> others;
  for (const int other : nics.nearest) {
    if (other != nics.nic) others.push_back(label(topology.device(other)));
  }
  if (!others.empty()) text += fmt::format("; as near: {}", join(others));
  return text;
}

// Each NUMA node with its GPUs, and beside each GPU the adapter it should use. Nodes that are not known come last.
std::string nodes_text(const Topology& topology, const NicPairing& pairing) {
  std::map<std::tuple<bool, int, std::string>, std::vector<const GpuNics*>> nodes;
  for (const GpuNics& gpu : pairing.gpus) {
    const Device& device = topology.device(gpu.gpu);
    nodes[{device.numa_node < 0, device.numa_node, device.cpus}].push_back(&gpu);
  }
  std::string text;
  for (const auto& [node, gpus] : nodes) {
    const auto& [unknown, number, cpus] = node;
    text += unknown ? "  NUMA node not known" : fmt::format("  NUMA node {}", number);
    text += (cpus.empty() ? "" : report::shorten(", CPUs " + cpus, 70)) + "\n";
    std::string alone;  // GPUs without an adapter share a line
    for (const GpuNics* gpu : gpus) {
      if (gpu->nic < 0)
        alone += " " + topology.device(gpu->gpu).name;
      else
        text += wrap("    +-- " + nearest_text(topology, *gpu), 10);
    }
    if (!alone.empty()) text += wrap("    +--" + alone, 8);
  }
  return text;
}

std::string adapters_text(const Topology& topology, const NicPairing& pairing) {
  std::map<NicRole, std::vector<std::string>> others;
  for (std::size_t i = 0; i < pairing.roles.size(); ++i) {
    if (pairing.roles[i] != NicRole::kRail) {
      others[pairing.roles[i]].push_back(label(topology.device(topology.gpus() + static_cast<int>(i))));
    }
  }
  std::string text;
  if (pairing.most_gpus_per_nic > 1) {
    text += fmt::format("  up to {} GPUs share an adapter\n", pairing.most_gpus_per_nic);
  }
  for (const auto& [role, names] : others) {
    const std::string_view what = role == NicRole::kFar ? "across a socket from every GPU, for management or storage: "
                                  : role == NicRole::kUnknown ? "not all links to GPUs are known: "
                                                              : "every GPU has a nearer adapter than: ";
    text += wrap(fmt::format("  {}{}", what, join(names)), 4);
  }
  return text;
}

// As in link_text, but without blanks; XG for XGMI where there is little room.
std::string cell(const Link& link, bool short_of_room) {
  if (link.kind == LinkKind::kUnknown) return "?";
  if (link.kind != LinkKind::kXgmi) return link_text(link);
  const std::string name = short_of_room ? "XG" : "XGMI";
  if (link.hops > 1) return fmt::format("{}/{}", name, link.hops);
  return link.lanes > 1 ? fmt::format("{}x{}", name, link.lanes) : name;
}

std::string matrix_text(const Topology& topology) {
  std::vector<report::Table::Column> columns{{"", Align::kLeft}};
  const bool short_of_room = topology.gpus() > 12;
  std::size_t width = 8;
  for (int gpu = 0; gpu < topology.gpus(); ++gpu) {
    columns.push_back({topology.device(gpu).name, Align::kRight});
    std::size_t widest = topology.device(gpu).name.size();
    for (int other = 0; other < topology.gpus(); ++other) {
      if (other != gpu) widest = std::max(widest, cell(topology.link(gpu, other), short_of_room).size());
    }
    width += widest + 1;
  }
  if (width > report::kColumns)
    return fmt::format("  (the matrix of {} GPUs is wider than this page)\n", topology.gpus());
  report::Table table(columns);
  for (int gpu = 0; gpu < topology.gpus(); ++gpu) {
    std::vector<std::string> cells{topology.device(gpu).name};
    for (int other = 0; other < topology.gpus(); ++other) {
      cells.push_back(gpu == other ? "." : cell(topology.link(gpu, other), short_of_room));
    }
    table.add(std::move(cells));
  }
  return table.text();
}

std::string island_text(const Topology& topology, const Island& island) {
  const std::string gpus = "GPU " + ranges(topology, island.gpus);
  if (island.gpus.size() == 1) return gpus + " alone";
  if (island.equal)
    return fmt::format("GPUs {}: {} between all", ranges(topology, island.gpus), with_bandwidth(island.slowest));
  const std::string_view kind = link_kind_name(topology.fastest().kind);
  if (island.direct) {
    return fmt::format("GPUs {}: {} between all, {} at least", ranges(topology, island.gpus), kind,
                       link_text(island.slowest));
  }
  const std::string joined = fmt::format("GPUs {}: joined by {}", ranges(topology, island.gpus), kind);
  if (island.slowest.kind == LinkKind::kUnknown) return joined + "; some pairs are not known";
  return fmt::format("{}, but not every pair directly; others by {} at worst", joined, link_text(island.slowest));
}

std::string links_text(const Topology& topology) {
  std::string text = "links between GPUs\n";
  const std::vector<Island> found = islands(topology);
  if (topology.fastest().kind != LinkKind::kUnknown) {
    for (const Island& island : found) text += wrap("  " + island_text(topology, island), 4);
    if (found.size() > 1) text += fmt::format("  between these: {} at worst\n", link_text(topology.slowest()));
    if (found.size() == 1 && found[0].equal) return text;
    return text + matrix_text(topology);
  }
  return text + "  not known\n";
}

// "1,2 3,4 6,7 by PHB; 0,5 by NODE; 8 left over"
std::string grouping_text(const Topology& topology, const EpGrouping& grouping) {
  std::string text;
  for (std::size_t i = 0; i < grouping.groups.size(); ++i) {
    if (i > 0) text += " ";
    text += ranges(topology, grouping.groups[i].gpus);
    const bool last = i + 1 == grouping.groups.size();
    if (!last && grouping.groups[i + 1].slowest == grouping.groups[i].slowest) continue;
    text += fmt::format(" by {}{}", link_text(grouping.groups[i].slowest), last ? "" : ";");
  }
  if (!grouping.left_over.empty()) text += fmt::format("; {} left over", ranges(topology, grouping.left_over));
  return text;
}

std::string groups_text(const Topology& topology) {
  report::Table table(
      {{"size"}, {"best groups", Align::kLeft}, {"bound by", Align::kLeft}, {"ranks in order", Align::kLeft}});
  for (const int size : ep_sizes(topology)) {
    const EpGrouping best = best_ep_groups(topology, size);
    table.add({std::to_string(size), grouping_text(topology, best), link_text(slowest_link(best)),
               link_text(slowest_link(consecutive_ep_groups(topology, size)))});
  }
  return "expert-parallel groups\n" + table.text();
}

std::string environment_text(const Topology& topology) {
  std::string text;
  const EnvironmentLines adapters = environment_lines(topology, 0);
  for (const std::string& line : adapters.lines) text += "  export " + line + "\n";
  for (const std::string& why : adapters.withheld) text += wrap("  " + why, 4);
  for (const int size : ep_sizes(topology)) {
    const EnvironmentLines order = environment_lines(topology, size);
    if (order.lines.size() == adapters.lines.size()) continue;
    text += fmt::format("  for groups of {}\n", size);
    for (std::size_t i = 0; i < order.lines.size() - adapters.lines.size(); ++i)
      text += "    export " + order.lines[i] + "\n";
  }
  return text.empty() ? text : "environment\n" + text;
}

std::string skipped_text(const Topology& topology) {
  if (topology.skipped().empty()) return "";
  std::string text = "not used\n";
  for (std::size_t i = 0; i < std::min(topology.skipped().size(), kMostSkipped); ++i) {
    const SkippedLine& skipped = topology.skipped()[i];
    text += wrap(skipped.line > 0 ? fmt::format("  line {}: {}", skipped.line, skipped.why) : "  " + skipped.why, 4);
  }
  if (topology.skipped_count() > kMostSkipped) {
    text += fmt::format("  and {} more\n", topology.skipped_count() - kMostSkipped);
  }
  return text;
}

}  // namespace

std::string to_text(const Topology& topology) {
  const NicPairing pairing = pair_nics(topology);
  std::string text = fmt::format("{}, {}, from {}\n", plural(static_cast<std::size_t>(topology.gpus()), "GPU"),
                                 plural(static_cast<std::size_t>(topology.nics()), "adapter"),
                                 topology_format_name(topology.format()));
  text += nodes_text(topology, pairing) + adapters_text(topology, pairing);
  if (topology.gpus() > 1) text += links_text(topology) + groups_text(topology);
  return text + environment_text(topology) + skipped_text(topology);
}

}  // namespace moetax
