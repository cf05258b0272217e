// The part of an exchange that crosses between nodes, for ranks that share no memory.
//
// A row goes from its source rank to a *stop*: the destination rank itself or, in the two-level exchange, the rank on
// the destination's node that stands for the source there (NodeMap::counterpart). Rows that cross are listed per stop,
// in token order; every choice of a token at ranks behind the stop is a slot of its row, in top-k order. The stop
// writes the row into all its slots, in its own memory or in that of its node mates. On the way back the stop returns
// every slot's row, or, two-level, one sum per row; the source finds them in the order of its lists.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "exchange/carrier.h"
#include "exchange/far_layout.h"
#include "exchange/layout.h"
#include "moetax/base/memory.h"
#include "moetax/transport/node_map.h"

namespace moetax {

// What a rank tells the others of a dispatch: rows per expert, and rows per stop.
struct FarOffer {
  const std::int32_t* count;  // [E]
  const std::int32_t* rows;   // [R] that cross to each stop; of this rank's node 0
};

// What of the shared windows the far part reads and writes.
struct NodeRows {
  const Window* rows;
  const Window* out;
  const Window* gate;
};

class Far {
 public:
  static Result<std::unique_ptr<Far>> create(Communicator& comm, const ExchangeOptions& options,
                                             std::span<const std::int64_t> max_tokens);

  Result<void> set_algorithm(ExchangeAlgorithm algorithm);
  const NodeMap& nodes() const { return nodes_; }
  bool sums_per_node() const { return algorithm_ == ExchangeAlgorithm::kTwoLevel; }

  // ---- A dispatch that makes a layout ----
  // rows [R] := this rank's rows per stop, from the choices alone.
  void count_rows(const RoutingTable& routing, std::span<std::int32_t> rows);
  // Sends this rank's offer, [E + R] numbers, to all ranks of other nodes and receives theirs: started before the ranks
  // meet, so that it costs no round of its own. `mine` stays untouched until it is finished.
  void start_offers(std::span<const std::int32_t> mine);
  Result<void> finish_offers(Operation operation, Deadline deadline);
  FarOffer offer_of(Rank far_rank) const;
  // Lists the rows that cross. Renumbers the places of `layout` on other nodes: their row becomes the place among the
  // returned rows where they will be found (two-level: that of the sum for the node's first choice, -1 for the others).
  void plan(const RoutingTable& routing, std::span<const FarOffer> offers, DispatchLayout::State& layout);

  // ---- Moving rows ----
  struct Moved {
    Carried carried;
    std::int64_t handed_on = 0;  // rows between this rank and node mates that it stands for or who stand for it
  };
  // `meanwhile` runs once, while the first rows travel. Tokens, or gradients with their gate weights, along the layout.
  // `fresh`: its slots are not known at the stops yet.
  Result<Moved> dispatch(DispatchLayout::State& layout, ConstRows tokens, const RoutingTable* weights, bool fresh,
                         const NodeRows& node, Operation operation, FunctionRef<void()> meanwhile);
  // The experts' results come back. `weighted`: two-level sums use the gate weights; d_gate travels if not.
  Result<Moved> combine(DispatchLayout::State& layout, bool weighted, const NodeRows& node, Operation operation);
  // What came back: rows, or, two-level, sums, which may be fp32 among rows that are not.
  const std::byte* returned(std::int32_t row) const {
    return returned_.data() + static_cast<std::size_t>(row) * returned_bytes();
  }
  std::size_t returned_bytes() const { return sums_per_node() ? sum_bytes_ : row_bytes_; }
  bool returns_wide() const { return returned_bytes() != row_bytes_; }
  std::span<const float> returned_gate() const { return returned_gate_; }  // by outgoing slot

  std::size_t reserved_bytes() const { return returned_.size(); }
  const std::byte* memory() const { return returned_.data(); }

 private:
  friend class DispatchLoad;
  friend class CombineLoad;
  Far(Communicator& comm, const ExchangeOptions& options);
  Rank stop_of(Rank source, Rank destination) const;
  void size_bundles(std::span<const FarOffer> offers, FarLayout& far) const;
  void list_outgoing(const RoutingTable& routing, DispatchLayout::State& layout);
  void make_room(FarLayout& far) const;

  Communicator& comm_;
  NodeMap nodes_;
  ExchangeAlgorithm algorithm_;
  ExpertPlacement placement_;
  Rank self_;
  int topk_;
  DType dtype_;
  std::int64_t hidden_;
  std::size_t row_bytes_, sum_bytes_;
  double deadline_s_;
  std::size_t max_header_bytes_ = 0;
  std::unique_ptr<Carrier> carrier_;
  PageBuffer returned_;
  std::vector<float> returned_gate_;
  std::vector<std::int32_t> offers_;  // [far ranks, E + R]
  std::vector<Message> messages_;
  std::vector<std::int64_t> last_token_, next_row_, next_slot_;  // [R], while listing
};

}  // namespace moetax
