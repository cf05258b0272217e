// A text taken as a topology gives machines whose links are symmetric and whose groups hold every GPU once, or an error
// of one line.
#include <vector>

#include "fuzz.h"
#include "moetax/machine/topology.h"
#include "moetax/machine/topology_facts.h"

namespace moetax::fuzz {
namespace {

constexpr int kMaxGroupedGpus = 24;  // larger machines take too long for a fuzzer

void check_links(const Topology& machine) {
  const int devices = static_cast<int>(machine.devices().size());
  for (int a = 0; a < devices; ++a) {
    for (int b = 0; b < devices; ++b) {
      require(a == b || machine.link(a, b) == machine.link(b, a));
      require(machine.link(a, b).gbs >= 0 && machine.link(a, b).gbs < 1e6);
    }
  }
  for (const SkippedLine& skipped : machine.skipped()) require(skipped.line >= 0 && !skipped.why.empty());
}

void check_groups(const Topology& machine, int size) {
  const EpGrouping grouping = best_ep_groups(machine, size);
  std::vector<int> seen(static_cast<std::size_t>(machine.gpus()), 0);
  for (const EpGroup& group : grouping.groups) {
    require(group.gpus.size() == static_cast<std::size_t>(size));
    for (const int gpu : group.gpus) ++seen[static_cast<std::size_t>(gpu)];
  }
  for (const int gpu : grouping.left_over) ++seen[static_cast<std::size_t>(gpu)];
  for (const int times : seen) require(times == 1);
  consecutive_ep_groups(machine, size);
  environment_lines(machine, size);
}

}  // namespace
}  // namespace moetax::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moetax;
  const std::string_view text = fuzz::as_text(data, size);
  const auto machines = parse_topologies(text, "topo.txt");
  looks_like_nccl_graph(text);
  if (!machines) {
    fuzz::require_good_message(machines.error(), "topo.txt:");
    return 0;
  }
  fuzz::require(!machines->empty() && looks_like_topology(text));
  for (const Topology& machine : *machines) {
    fuzz::check_links(machine);
    islands(machine);
    pair_nics(machine);
    if (machine.gpus() > fuzz::kMaxGroupedGpus) continue;
    for (const int n : ep_sizes(machine)) fuzz::check_groups(machine, n);
  }
  return 0;
}
