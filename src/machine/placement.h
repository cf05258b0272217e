// The cores this process may use, and which of them a rank gets.
#pragma once

#include <hwloc.h>

#include <optional>
#include <span>
#include <vector>

#include "moetax/base/ids.h"

namespace moetax {

// The topology of this machine without devices, loaded at the first call and kept for the life of the process, together
// with the processors this process could use at that moment: pinning a rank later does not shrink what the next one
// sees, whether it runs in a thread or in a forked child.
class Topology {
 public:
  static const Topology& of_this_machine();

  struct Core {
    hwloc_obj_t object = nullptr;
    int node = -1;                        // NUMA node, as an index into nodes(); -1: it has none
    hwloc_const_bitmap_t cpus = nullptr;  // its usable hardware threads
  };
  std::span<const Core> cores() const { return cores_; }
  std::span<const hwloc_obj_t> nodes() const { return nodes_; }  // those with usable cores
  hwloc_topology_t handle() const { return topology_; }

 private:
  Topology();
  void find_cores(hwloc_const_bitmap_t usable);

  hwloc_topology_t topology_ = nullptr;
  std::vector<hwloc_obj_t> nodes_;
  std::vector<Core> cores_;
};

// Which `threads` cores rank gets when `ranks` ranks share cores whose NUMA nodes are node_of_core (ascending). Ranks
// spread evenly over the nodes and do not straddle two while that is possible; no two ranks share a core. Nothing when
// they do not all fit.
std::optional<std::vector<int>> choose_cores(std::span<const int> node_of_core, Rank rank, int ranks, int threads);

}  // namespace moetax
