// What a topology means for expert parallelism: which GPUs belong together, what a group of n crosses, and which
// network adapter each GPU should use.
//
// GPUs and NICs are positions in Topology::devices(). Nothing here takes an unknown link for a link.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "moetax/machine/topology.h"

namespace moetax {

// GPUs that reach each other over links of the machine's fastest class only, directly or through each other.
struct Island {
  std::vector<int> gpus;  // ascending
  Link slowest;           // over all its pairs, whatever their class; unknown for a single GPU
  bool direct = true;     // every pair has a link of the fastest class of its own
  bool equal = true;      // and all of these are the same
};
// All GPUs, each in one island; by first GPU. One island each when no link is known.
std::vector<Island> islands(const Topology& topology);

// The slowest link among the pairs of `gpus`; unknown if one of them is, or with fewer than two.
Link slowest_link(const Topology& topology, std::span<const int> gpus);

struct EpGroup {
  std::vector<int> gpus;  // ascending
  Link slowest;           // what its all-to-all is bound by
};

struct EpGrouping {
  int size = 0;                 // GPUs of a group
  std::vector<EpGroup> groups;  // gpus() / size of them
  std::vector<int> left_over;   // GPUs in none
};

// The group sizes worth asking about, ascending: powers of two and divisors of gpus(), from 2, and gpus() itself.
std::vector<int> ep_sizes(const Topology& topology);
// As many groups as possible whose links are all of the fastest sort, then of the next, and so on, from what is left;
// so a group behind others in the list is at best as fast. Of groups as good, those within an island. The search is
// exhaustive for machines of usual size and stops after a fixed number of steps otherwise; the same topology always
// gives the same groups. 2 <= size <= gpus().
EpGrouping best_ep_groups(const Topology& topology, int size);
// GPUs in order, `size` at a time: what a launcher makes of consecutive ranks.
EpGrouping consecutive_ep_groups(const Topology& topology, int size);
// The link that bounds the slowest group.
Link slowest_link(const EpGrouping& grouping);
// True when all links of the group are of the machine's fastest class.
bool stays_fastest(const Topology& topology, const EpGroup& group);

enum class NicRole : std::uint8_t {
  kRail,     // among the nearest of some GPU
  kSpare,    // every GPU has a nearer one
  kFar,      // a spare that is across a socket from every GPU: for management or storage, or of GPUs not listed
  kUnknown,  // nobody's nearest so far as is known, but not all of its links to GPUs are
};

struct GpuNics {
  int gpu = 0;
  Link link;                 // to the nearest NICs
  std::vector<int> nearest;  // all with that link, ascending; empty when none is known
  int nic = -1;              // of these, the one with the fewest GPUs so far; -1 when there is none
};

struct NicPairing {
  std::vector<GpuNics> gpus;   // one per GPU
  std::vector<NicRole> roles;  // one per NIC, the first for the device at position gpus()
  int most_gpus_per_nic = 0;   // 1: every GPU has a rail of its own
};
NicPairing pair_nics(const Topology& topology);

struct EnvironmentLines {
  std::vector<std::string> lines;     // "CUDA_VISIBLE_DEVICES=0,2,1,3", for a shell
  std::vector<std::string> withheld;  // what would be useful but cannot be said, and why
};
// The device order that makes consecutive ranks the groups of best_ep_groups(topology, ep_size), when that is better
// than the order there is (a faster slowest link, or as fast a one and more pairs on the fastest class), and the
// adapters worth using, when some are not. Nothing follows from links that are unknown. ep_size < 2: adapters only.
EnvironmentLines environment_lines(const Topology& topology, int ep_size);

}  // namespace moetax
