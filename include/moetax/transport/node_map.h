// The ranks of a communicator by the nodes they are on, as one rank sees them.
#pragma once

#include <span>
#include <vector>

#include "moetax/transport/communicator.h"

namespace moetax {

// Nodes are numbered 0.. in the order of their first rank here, which need not be Communicator::node_of's number. The
// ranks of a node are in rank order, and a rank's place is its index among them. Ranks with the same place form a rail;
// rails reach over all nodes, so there are as many as the smallest node has ranks.
class NodeMap {
 public:
  explicit NodeMap(const Communicator& comm);

  int num_nodes() const { return static_cast<int>(ranks_.size()); }
  int num_rails() const { return rails_; }
  int node_of(Rank rank) const { return node_[static_cast<std::size_t>(rank)]; }
  int place_of(Rank rank) const { return place_[static_cast<std::size_t>(rank)]; }
  std::span<const Rank> ranks_of(int node) const { return ranks_[static_cast<std::size_t>(node)]; }
  std::span<const Rank> near() const { return ranks_of(node_of(self_)); }  // this rank's node, itself included
  std::span<const Rank> far() const { return far_; }                       // everybody else
  // Who stands for `rank` on `node`: the rank with its place, counted round where the node has fewer.
  Rank counterpart(Rank rank, int node) const;

 private:
  Rank self_;
  int rails_ = 0;
  std::vector<int> node_, place_;         // [R]
  std::vector<std::vector<Rank>> ranks_;  // by node
  std::vector<Rank> far_;
};

}  // namespace moetax
