// Which node each rank of a world is on, and how error messages say so.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "moetax/base/ids.h"

namespace moetax {

class Places {
 public:
  // node_of[world rank]; host_of[node], empty where hosts have no names of their own.
  explicit Places(std::vector<Node> node_of, std::vector<std::string> host_of = {})
      : node_of_(std::move(node_of)), host_of_(std::move(host_of)) {}
  // Ranks [n * ranks_per_node, ...) on node n; all on one if that is 0.
  static Places in_blocks(int ranks, int ranks_per_node);

  Node node_of(Rank world_rank) const { return node_of_[static_cast<std::size_t>(world_rank)]; }
  bool several_nodes(std::span<const Rank> world_ranks) const;
  bool several_nodes() const;

  // "rank 3"; in a world of several nodes "rank 3 (node 1, host n1)", "ranks 2-3 (node 1, host n1)" if all are there.
  // `world_ranks` ascending, not empty.
  std::string text(std::span<const Rank> world_ranks) const;
  std::string text(Rank world_rank) const { return text(std::span(&world_rank, 1)); }

 private:
  std::vector<Node> node_of_;
  std::vector<std::string> host_of_;
};

}  // namespace moetax
