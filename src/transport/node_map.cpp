#include "moetax/transport/node_map.h"

#include <algorithm>

namespace moetax {

NodeMap::NodeMap(const Communicator& comm) : self_(comm.rank()) {
  std::vector<Node> known;
  for (const Rank rank : comm.everyone()) {
    const auto found = std::find(known.begin(), known.end(), comm.node_of(rank));
    const auto node = static_cast<std::size_t>(found - known.begin());
    if (found == known.end()) {
      known.push_back(comm.node_of(rank));
      ranks_.emplace_back();
    }
    node_.push_back(static_cast<int>(node));
    place_.push_back(static_cast<int>(ranks_[node].size()));
    ranks_[node].push_back(rank);
    if (!comm.shares_memory(rank)) far_.push_back(rank);
  }
  const auto smaller = [](const auto& a, const auto& b) { return a.size() < b.size(); };
  rails_ = static_cast<int>(std::min_element(ranks_.begin(), ranks_.end(), smaller)->size());
}

Rank NodeMap::counterpart(Rank rank, int node) const {
  const auto there = ranks_of(node);
  return there[static_cast<std::size_t>(place_of(rank)) % there.size()];
}

}  // namespace moetax
