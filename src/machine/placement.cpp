#include "machine/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>

#include "machine/cgroup.h"
#include "moetax/machine/host.h"

namespace moetax {
namespace {

// A run of consecutive cores for a number of ranks.
struct Block {
  int first_core = 0;
  int cores = 0;
  int ranks = 0;
};

std::vector<Block> blocks_of_nodes(std::span<const int> node_of_core) {
  std::vector<Block> blocks;
  for (int core = 0; core < static_cast<int>(node_of_core.size()); ++core) {
    const auto i = static_cast<std::size_t>(core);
    if (core == 0 || node_of_core[i] != node_of_core[i - 1]) blocks.push_back({core, 0, 0});
    ++blocks.back().cores;
  }
  return blocks;
}

// Hands out ranks one by one to the node that is least full; false when some node boundary must be crossed.
bool share_out(std::vector<Block>& blocks, int ranks, int threads) {
  for (int rank = 0; rank < ranks; ++rank) {
    Block* emptiest = nullptr;
    for (Block& block : blocks) {
      if ((block.ranks + 1) * threads > block.cores) continue;
      if (!emptiest || block.ranks * emptiest->cores < emptiest->ranks * block.cores) emptiest = &block;
    }
    if (!emptiest) return false;
    ++emptiest->ranks;
  }
  return true;
}

std::string describe(const Topology& topology, hwloc_const_bitmap_t cpus, int node) {
  char* list = nullptr;
  hwloc_bitmap_list_asprintf(&list, cpus);
  std::string text = fmt::format("CPU{} {}", hwloc_bitmap_weight(cpus) == 1 ? "" : "s", list ? list : "?");
  free(list);
  if (node >= 0) text += fmt::format(", NUMA node {}", topology.nodes()[static_cast<std::size_t>(node)]->os_index);
  return text;
}

// Binds the calling thread and, where there is a choice, its new memory. Memory is a preference, not a demand: a full
// node spills over instead of failing, and containers that forbid the call still get first touch.
std::string bind(const Topology& topology, std::span<const int> chosen) {
  hwloc_bitmap_t cpus = hwloc_bitmap_alloc();
  int node = topology.cores()[static_cast<std::size_t>(chosen.front())].node;
  for (const int i : chosen) {
    const Topology::Core& core = topology.cores()[static_cast<std::size_t>(i)];
    hwloc_bitmap_or(cpus, cpus, core.cpus);
    if (core.node != node) node = -1;
  }
  std::string text;
  if (hwloc_set_cpubind(topology.handle(), cpus, HWLOC_CPUBIND_THREAD) != 0) {
    text = fmt::format("not pinned: the kernel refused: {}", std::strerror(errno));
  } else {
    text = describe(topology, cpus, node);
    if (node >= 0 && topology.nodes().size() > 1) {
      hwloc_set_membind(topology.handle(), topology.nodes()[static_cast<std::size_t>(node)]->nodeset,
                        HWLOC_MEMBIND_BIND, HWLOC_MEMBIND_THREAD | HWLOC_MEMBIND_BYNODESET);
    }
  }
  hwloc_bitmap_free(cpus);
  return text;
}

}  // namespace

const Topology& Topology::of_this_machine() {
  static const auto* topology = new Topology;  // never destroyed: threads may still look at it while the process ends
  return *topology;
}

Topology::Topology() {
  if (hwloc_topology_init(&topology_) != 0) return;
  // Devices would cost a scan of the PCI bus; DONT_CHANGE_BINDING keeps the load from walking over the cores.
  hwloc_topology_set_io_types_filter(topology_, HWLOC_TYPE_FILTER_KEEP_NONE);
  hwloc_topology_set_flags(topology_, HWLOC_TOPOLOGY_FLAG_DONT_CHANGE_BINDING);
  if (hwloc_topology_load(topology_) != 0) return;
  hwloc_bitmap_t usable = hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(topology_));
  hwloc_bitmap_t bound = hwloc_bitmap_alloc();
  if (hwloc_get_cpubind(topology_, bound, HWLOC_CPUBIND_PROCESS) == 0) hwloc_bitmap_and(usable, usable, bound);
  find_cores(usable);
  hwloc_bitmap_free(bound);
  hwloc_bitmap_free(usable);
}

void Topology::find_cores(hwloc_const_bitmap_t usable) {
  // Some virtual machines and kernels show hardware threads without cores.
  const bool has_cores = hwloc_get_nbobjs_by_type(topology_, HWLOC_OBJ_CORE) > 0;
  const hwloc_obj_type_t type = has_cores ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
  for (hwloc_obj_t object = nullptr; (object = hwloc_get_next_obj_by_type(topology_, type, object));) {
    if (!hwloc_bitmap_intersects(object->cpuset, usable)) continue;
    hwloc_bitmap_t cpus = hwloc_bitmap_dup(object->cpuset);
    hwloc_bitmap_and(cpus, cpus, usable);
    cores_.push_back({object, -1, cpus});
  }
  for (hwloc_obj_t node = nullptr; (node = hwloc_get_next_obj_by_type(topology_, HWLOC_OBJ_NUMANODE, node));) {
    if (!hwloc_bitmap_intersects(node->cpuset, usable)) continue;
    for (Core& core : cores_) {
      if (hwloc_bitmap_intersects(core.cpus, node->cpuset)) core.node = static_cast<int>(nodes_.size());
    }
    nodes_.push_back(node);
  }
  std::stable_sort(cores_.begin(), cores_.end(), [](const Core& a, const Core& b) { return a.node < b.node; });
}

std::optional<std::vector<int>> choose_cores(std::span<const int> node_of_core, Rank rank, int ranks, int threads) {
  const int cores = static_cast<int>(node_of_core.size());
  if (static_cast<std::int64_t>(ranks) * threads > cores) return std::nullopt;
  std::vector<Block> blocks = blocks_of_nodes(node_of_core);
  if (!share_out(blocks, ranks, threads)) blocks = {{0, cores, ranks}};
  auto block = blocks.begin();
  for (; rank >= block->ranks; ++block) rank -= block->ranks;
  std::vector<int> chosen(static_cast<std::size_t>(threads));
  std::iota(chosen.begin(), chosen.end(), block->first_core + rank * block->cores / block->ranks);
  return chosen;
}

std::string pin_rank(Rank rank, int ranks, int threads) {
  assert(rank >= 0 && rank < ranks && threads > 0);
  const Topology& topology = Topology::of_this_machine();
  std::vector<int> node_of_core;
  for (const Topology::Core& core : topology.cores()) node_of_core.push_back(core.node);
  const auto chosen = choose_cores(node_of_core, rank, ranks, threads);
  const std::size_t cores = node_of_core.size();
  if (!chosen) {
    const std::int64_t all_threads = static_cast<std::int64_t>(ranks) * threads;
    return fmt::format("not pinned: {} threads on {} core{}", all_threads, cores, cores == 1 ? "" : "s");
  }
  // A container with a share of CPU time but every core in sight has neighbours that would all choose the first cores.
  const double quota = read_cgroup_limits().cpus;
  if (quota < static_cast<double>(cores)) {
    return fmt::format("not pinned: the cgroup's CPU quota is {:.4g} of {} cores", quota, cores);
  }
  return bind(topology, *chosen);
}

}  // namespace moetax
