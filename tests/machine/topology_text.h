// Short forms of what topologies say, for tests to compare with.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "moetax/machine/topology.h"
#include "moetax/machine/topology_facts.h"

namespace moetax {

inline std::vector<Topology> read_all(std::string_view text) {
  auto machines = parse_topologies(text, "topo.txt");
  EXPECT_TRUE(machines) << machines.error().message;
  return machines ? std::move(*machines) : std::vector<Topology>{};
}

// The only machine in `text`.
inline Topology read_one(std::string_view text) {
  auto machines = read_all(text);
  EXPECT_EQ(machines.size(), 1U);
  return machines.empty() ? Topology{} : std::move(machines.front());
}

inline std::string between(const Topology& topology, int a, int b) {
  return link_text(topology.link(a, b));
}

// "0+1:NV2 2+3:SYS": the best groups of `size` and the slowest link of each.
inline std::string groups_text(const Topology& topology, int size) {
  std::string out;
  for (const EpGroup& group : best_ep_groups(topology, size).groups) {
    if (!out.empty()) out += " ";
    out += fmt::format("{}:{}", fmt::join(group.gpus, "+"), link_text(group.slowest));
  }
  return out;
}

// "0+1 2+3": the islands.
inline std::string islands_text(const Topology& topology) {
  std::string out;
  for (const Island& island : islands(topology)) {
    if (!out.empty()) out += " ";
    out += fmt::format("{}", fmt::join(island.gpus, "+"));
  }
  return out;
}

// The number of the NIC each GPU is paired with, -1 for none.
inline std::vector<int> paired_nics(const Topology& topology) {
  std::vector<int> nics;
  for (const GpuNics& gpu : pair_nics(topology).gpus) {
    nics.push_back(gpu.nic < 0 ? -1 : topology.device(gpu.nic).index);
  }
  return nics;
}

inline std::vector<int> nics_of_role(const Topology& topology, NicRole role) {
  std::vector<int> nics;
  const NicPairing pairing = pair_nics(topology);
  for (std::size_t i = 0; i < pairing.roles.size(); ++i) {
    if (pairing.roles[i] == role) nics.push_back(static_cast<int>(i));
  }
  return nics;
}

}  // namespace moetax
