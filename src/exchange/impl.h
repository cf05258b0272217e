// The state of an Exchange, and the steps its calls are made of.
//
// Each rank owns shared windows: what it offers when it joins a dispatch, the copy lists others write for it, and per
// handle in flight a set of row buffers (rows in, rows out, gate weights). Calls are numbered; flags carry the number.
//
// Rows of a dispatch travel in one of two ways, as their sender chooses:
// - pushed: the sender writes each row once into its first place at the destination, and a list of the further places,
//   which the receiver fills by local copies. All senders share the work, also where everybody sends to one rank.
// - offered, for few tokens: the sender lays choices and rows open with its counts, and receivers fetch them. That
// saves
//   the second round of flags, and the cost of writing to lines that another core has in its cache.
//
// Why one buffer set per handle is enough, and one copy list from each rank to each:
// - A rank writes into a peer's rows, gate weights or copy list of call n only after it has seen kCall(n) of
// everybody.
//   A peer posts kCall(n) when it has begun call n, that is after it gave back the handle that last used these
//   buffers (buffers are chosen in the same order everywhere), after it used the earlier lists, and after it finished
//   pulling from anybody else's buffers.
// - A rank's experts write `out` of the buffers of dispatch n only after kCall(n) of everybody, which a peer posts
//   after it finished every earlier combine, so nobody still pulls the old results.
// - Offers alternate between two slots. A rank rewrites the slot of its dispatch n - 2 when it begins dispatch n, after
//   it has seen kCall(n - 1) of everybody, which a peer posts after it completed dispatch n - 2.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "exchange/call.h"
#include "exchange/far.h"
#include "exchange/layout.h"
#include "moetax/exchange/exchange.h"
#include "moetax/wire/rows.h"

namespace moetax {

// A set of row buffers, on every rank. Taken while a handle refers to it.
struct DispatchHandle::Buffers {
  int idx = 0;
  Window rows, out, gate;
};

// What a rank says about a call when it joins it. It travels with the flag, so that all see at once whether they make
// the same call.
enum class CallKind : std::uint8_t { kDispatch, kDispatchGrad, kRedispatch, kCombine, kCombineGrad };
constexpr const char* name_of(CallKind kind) {
  constexpr const char* kNames[] = {"dispatch", "dispatch_grad", "redispatch", "combine", "combine_grad"};
  return kNames[static_cast<int>(kind)];
}
struct Announcement {
  CallKind kind = CallKind::kDispatch;
  int buffers_idx = 0;
  std::uint64_t layout = 0;  // the number of the dispatch that made the layout; 0 for a dispatch
  bool pushes = false;       // its rows; else they are in the offer
  ExchangeAlgorithm algorithm = ExchangeAlgorithm::kFlat;
  std::int64_t tokens = 0;  // T

  Note note() const;
  static Announcement from(const Note& note);
  bool same_call(const Announcement& other) const {
    return kind == other.kind && buffers_idx == other.buffers_idx && layout == other.layout &&
           algorithm == other.algorithm;
  }
};

// What a rank lays open to the others: its counts and, unless it pushes its rows, its choices and rows.
struct Offer {
  std::int32_t* count;     // [E]
  std::int32_t* far_rows;  // [R] right behind the counts: rows that cross to each stop; on one node empty
  std::int32_t* choice;    // [T, K]
  std::byte* rows;         // [T, H]
};

inline constexpr std::size_t kLine = 64;
constexpr std::size_t to_lines(std::size_t bytes) {
  return (bytes + kLine - 1) / kLine * kLine;
}

struct Exchange::Impl {
  using State = DispatchLayout::State;
  using Buffers = DispatchHandle::Buffers;
  // What a dispatch sends along a layout.
  struct Cargo {
    ConstRows rows;
    const RoutingTable* weights = nullptr;  // null: gate weights do not travel
    bool pushes = true;                     // else the rows are in this rank's offer
    bool new_layout = false;                // its copies have yet to be learned from the senders
  };

  // Set-up, in impl.cpp.
  Impl(std::unique_ptr<Communicator> own_comm, const ExchangeOptions& opts);
  Result<void> make_windows(Deadline deadline);
  std::int64_t max_rows(Rank rank) const;
  std::int64_t max_copies(Rank from, Rank to) const;
  std::size_t list_offset(Rank from, Rank to) const;
  CopyList copy_list(Rank from, Rank to) const;
  std::int64_t max_offered(Rank rank) const;
  std::size_t num_counts() const;
  std::size_t offer_bytes(Rank rank) const;
  Offer make_offer(Rank rank, std::size_t slot) const;
  const Offer& offer(Rank rank) const { return offers[sends % 2][static_cast<std::size_t>(rank)]; }

  // The calls, in exchange.cpp.
  Result<Dispatched> dispatch(ConstRows tokens, const RoutingTable& routing);
  Result<Dispatched> send_again(CallKind kind, const DispatchLayout& layout, const Cargo& cargo);
  Result<DispatchLayout> combine(DispatchHandle handle, const RoutingTable& routing, ConstRows addend, Rows out);
  Result<void> combine_grad(DispatchHandle handle, std::span<const float> d_gate, MatrixView<float> d_tokens,
                            MatrixView<float> d_weight);
  Result<void> set_algorithm(ExchangeAlgorithm algorithm);

  // Their checks and their steps between ranks, in impl.cpp.
  Result<void> check_rows(const char* what, std::int64_t tokens, ConstRows rows) const;
  Result<void> check_routing(const char* call, std::int64_t tokens, const RoutingTable& routing) const;
  Result<void> check_layout(const char* call, const DispatchLayout& layout) const;
  Result<std::shared_ptr<Buffers>> take_buffers(const char* call) const;
  Result<std::shared_ptr<State>> take_layout();
  void post_all(Channel channel, std::uint64_t value, const Note& note) const;
  void post_near(Channel channel, std::uint64_t value) const;
  Result<void> await(Call& call, Channel channel, std::span<const Rank> ranks, Part idle) const;
  Result<void> join(Call& call, Announcement mine);
  Announcement announced(const Call& call, Rank peer) const;
  Unexpected different_call(const Call& call, const Announcement& mine, Rank peer) const;

  // Moving rows, in send.cpp and pull.cpp.
  Result<Dispatched> send(Call& call, std::shared_ptr<State> layout, std::shared_ptr<Buffers> buffers,
                          const Cargo& cargo);
  void lay_open(ConstRows rows, const RoutingTable& routing) const;
  void count_offered(Call& call, const State& layout) const;
  void push_rows(Call& call, const State& layout, const Buffers& buffers, ConstRows rows) const;
  void push_weights(const State& layout, const Buffers& buffers, const RoutingTable& routing) const;
  void pack_rows(Call& call, const State& layout, const Buffers& buffers, ConstRows rows) const;
  void take_copy_lists(State& layout) const;
  void copy_rows(Call& call, const State& layout, const Buffers& buffers) const;
  void fetch_rows(Call& call, State& layout, const Buffers& buffers);
  void pull_weighted(Call& call, const State& layout, const Buffers& buffers, const RoutingTable& routing,
                     ConstRows addend, Rows out) const;
  void pull_gradients(Call& call, const State& layout, const Buffers& buffers, MatrixView<float> d_tokens,
                      MatrixView<float> d_weight) const;
  Store store_for(std::int64_t rows) const;

  // What crosses between nodes, in cross.cpp. All do nothing on one node.
  Result<void> learn_far_counts(Call& call);
  void plan_far(const RoutingTable& routing, State& layout);
  Result<void> send_far(Call& call, State& layout, const Buffers& buffers, const Cargo& cargo,
                        FunctionRef<void()> meanwhile);
  Result<void> fetch_far(Call& call, State& layout, const Buffers& buffers, bool weighted);
  void tell_flows(const Call& call, const Carried& carried) const;
  Result<void> check_weights(const State& layout, const RoutingTable& routing) const;
  void take_far_gradients(const State& layout, MatrixView<float> d_weight) const;
  bool is_near(Rank rank) const { return !far || comm->shares_memory(rank); }

  std::unique_ptr<Communicator> comm;
  ExchangeOptions options;
  ExpertPlacement placement;
  Rank self;
  std::size_t row_bytes;
  LayoutBuilder builder;
  std::vector<std::int64_t> max_tokens;         // [R]
  std::vector<std::int64_t> max_offered_bytes;  // [R]
  std::size_t stream_bytes = 0;                 // from here on rows are written around the caches
  Window offer_window, list_window;
  std::vector<Offer> offers[2];                    // by slot, [R]
  std::vector<const std::int32_t*> all_counts[2];  // by slot, [R]: the offers' counts
  std::vector<CopyList> lists_out;                 // [R] in the node mates' memory, for this rank's rows
  std::vector<Rank> pushers;                       // of the call under way
  std::vector<std::shared_ptr<Buffers>> buffer_sets;
  std::vector<std::shared_ptr<State>> layouts;  // grows to the number alive at once
  std::unique_ptr<Far> far;                     // null on one node
  std::vector<FarOffer> far_offers;             // [R]
  std::uint64_t number = 0;                     // of the last call
  std::uint64_t sends = 0;                      // calls that dispatch rows; its parity is the offers' slot
};

}  // namespace moetax
