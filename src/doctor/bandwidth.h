// What a table of nccl-tests says about a network.
#pragma once

#include <optional>

#include "doctor/facts.h"

namespace moetax::doctor {

enum class Collective : std::uint8_t { kAllReduce, kAllToAll, kOther };

struct BandwidthRun {
  Collective collective = Collective::kOther;
  int ranks = 0, nodes = 0, per_node = 0;
  double busbw = 0;  // GB/s, the best of its rows
  int line = 0;      // of that row
};

// Nothing where the ranks are not listed or are not spread evenly over their hosts.
std::optional<BandwidthRun> run_of(const BandwidthFacts& table);

}  // namespace moetax::doctor
