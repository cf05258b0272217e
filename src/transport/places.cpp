#include "transport/places.h"

#include <fmt/format.h>

#include <algorithm>

#include "transport/rank_text.h"

namespace moetax {

Places Places::in_blocks(int ranks, int ranks_per_node) {
  std::vector<Node> nodes(static_cast<std::size_t>(ranks));
  for (Rank rank = 0; rank < ranks; ++rank) {
    nodes[static_cast<std::size_t>(rank)] = ranks_per_node > 0 ? rank / ranks_per_node : 0;
  }
  return Places(std::move(nodes));
}

bool Places::several_nodes(std::span<const Rank> world_ranks) const {
  const auto elsewhere = [&](Rank rank) { return node_of(rank) != node_of(world_ranks.front()); };
  return std::any_of(world_ranks.begin(), world_ranks.end(), elsewhere);
}

bool Places::several_nodes() const {
  return std::any_of(node_of_.begin(), node_of_.end(), [&](Node node) { return node != node_of_.front(); });
}

std::string Places::text(std::span<const Rank> world_ranks) const {
  std::string ranks = format_ranks(world_ranks);
  if (!several_nodes() || several_nodes(world_ranks)) return ranks;
  const Node node = node_of(world_ranks.front());
  if (host_of_.empty()) return fmt::format("{} (node {})", ranks, node);
  return fmt::format("{} (node {}, host {})", ranks, node, host_of_[static_cast<std::size_t>(node)]);
}

}  // namespace moetax
