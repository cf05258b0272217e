// What a call of an exchange has to bring where, and the bytes that each algorithm puts on which link for it.
//
// Everything follows from the routing alone, so that a prediction needs no run: rows, choices and what steers them. The
// transport's counters must equal it; a test holds the two together.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "moetax/base/exchange_algorithm.h"
#include "moetax/base/ids.h"
#include "moetax/base/matrix.h"

namespace moetax {

// Which ranks sit where. Ranks are those of the world; each `group` in a row hold one replica of the experts and
// exchange tokens among themselves.
class RankPlaces {
 public:
  RankPlaces() = default;
  // `node` [R] of each rank, numbered from 0; `group` ranks exchange with each other and divide R.
  RankPlaces(std::vector<int> node, int group);

  int ranks() const { return static_cast<int>(node_.size()); }
  int nodes() const { return nodes_; }
  int group() const { return group_; }
  int node_of(Rank rank) const { return node_[static_cast<std::size_t>(rank)]; }
  int first_of_group(Rank rank) const { return rank / group_ * group_; }
  // Whether ranks of one group sit on different nodes, so that rows may cross.
  bool crosses() const { return crosses_; }
  // Whether ranks of one group share a node.
  bool shares_nodes() const { return shares_nodes_; }
  // The ranks of `rank`'s group on a node, ascending.
  std::span<const Rank> mates(Rank rank, int on_node) const { return mates_[mates_at(rank, on_node)]; }
  // The nodes that `rank`'s group is on, in the order of its ranks. Rings and meshes lead over these alone.
  std::span<const int> nodes_of_group(Rank rank) const { return group_nodes_[static_cast<std::size_t>(rank / group_)]; }
  // The place of `rank`'s node among them.
  int place_of_node(Rank rank) const { return place_of_node_[static_cast<std::size_t>(rank)]; }
  // Who stands for `rank` on a node where it has mates: the one with its place, counted round where there are fewer.
  Rank counterpart(Rank rank, int on_node) const {
    const std::span<const Rank> there = mates(rank, on_node);
    return there[static_cast<std::size_t>(place_[static_cast<std::size_t>(rank)]) % there.size()];
  }

 private:
  std::size_t mates_at(Rank rank, int on_node) const {
    return static_cast<std::size_t>(rank / group_ * nodes_ + on_node);
  }

  std::vector<int> node_;                      // [R]
  std::vector<int> place_;                     // [R] among the mates of its own node
  std::vector<int> place_of_node_;             // [R]
  std::vector<std::vector<int>> group_nodes_;  // [groups]
  std::vector<std::vector<Rank>> mates_;       // [groups, nodes]
  int nodes_ = 0, group_ = 1;
  bool crosses_ = false, shares_nodes_ = false;
};

// One dispatch, as its routing says; the combine is its mirror.
struct Traffic {
  RankPlaces places;
  int experts = 0, topk = 0;
  double sum_scale = 1;               // bytes of a node's sum (two-level) over those of a row: 2 for fp32 sums of bf16
  std::vector<std::int64_t> tokens;   // [R] of each source
  std::vector<std::int64_t> choices;  // [R, R] (token, expert) pairs from source to the expert's rank
  std::vector<std::int64_t> rows;     // [R, R] tokens of the source with an expert on the destination
  std::vector<std::int64_t> node_rows;  // [R, nodes] tokens of the source with an expert on the node

  static Traffic none(RankPlaces places);
  // From what count_source() gave on every rank, in rank order: [R * source_size(places)].
  static Traffic of_sources(RankPlaces places, int experts, int topk, std::span<const std::int64_t> sources);
  std::int64_t choices_at(Rank from, Rank to) const { return choices[at(from, to)]; }
  std::int64_t rows_at(Rank from, Rank to) const { return rows[at(from, to)]; }
  std::int64_t node_rows_at(Rank from, int node) const {
    return node_rows[static_cast<std::size_t>(from * places.nodes() + node)];
  }

 private:
  std::size_t at(Rank from, Rank to) const { return static_cast<std::size_t>(from * places.ranks() + to); }
};

// What `source` sends, for Traffic::of_sources: its tokens, choices and rows by rank, rows by node. `expert` [T, K] are
// its tokens' choices, `owner` [E] the world's rank that holds an expert for this source.
std::size_t source_size(const RankPlaces& places);
std::vector<std::int64_t> count_source(const RankPlaces& places, std::span<const Rank> owner,
                                       MatrixView<const std::int32_t> expert);

// The calls of an exchange, as ExchangeRecord spells them.
enum class ExchangeCall : std::uint8_t { kDispatch, kDispatchGrad, kRedispatch, kCombine, kCombineGrad };
const char* to_string(ExchangeCall call);
std::optional<ExchangeCall> exchange_call(std::string_view name);
constexpr bool goes_back(ExchangeCall call) {
  return call == ExchangeCall::kCombine || call == ExchangeCall::kCombineGrad;
}

// What one rank puts on the links to other nodes, and takes off them, between two meetings of all.
struct HopLoad {
  std::vector<double> out_bytes, in_bytes;      // [R], headers included
  std::vector<std::int64_t> out_rows, in_rows;  // [R]
  std::vector<int> peers;                       // [R] that the rank sends to

  explicit HopLoad(int ranks);
  double of_node(const RankPlaces& places, int node) const;  // bytes over its link, of the fuller way
  double most_of_node(const RankPlaces& places) const;       // of the fullest node's
  double mean_of_nodes(const RankPlaces& places) const;
  double most_of_rank() const;
};

// The hops of a call: one, or as many as the longest way of a ring or a mesh has. Empty on one node.
//   dispatch  rows: one per destination rank (two-level: node); header: 8 bytes per choice, new layouts only, and 4 for
//             its gate weight where that travels (gradients; two-level)
//   combine   rows: one per choice (two-level: one per node); header: 4 bytes per choice of a gradient
// Ring: the shorter way round, at most floor(n / 2) hops; exactly half: by the sender's node. Mesh: rows by columns as
// square as n allows, along the row and then the column.
std::vector<HopLoad> hop_loads(const Traffic& traffic, ExchangeCall call, ExchangeAlgorithm algorithm,
                               double row_bytes);

}  // namespace moetax
