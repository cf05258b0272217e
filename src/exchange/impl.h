// The state of an Exchange, and the steps its calls are made of.
//
// Each rank owns shared windows: its counts, the copy lists others write for it, and per handle in flight a set of row
// buffers (rows in, rows out, gate weights). Calls are numbered; flags carry the number.
//
// Why one buffer set per handle is enough, and one set of counts and lists for all:
// - A rank writes into a peer's rows, gate weights or copy list of call n only after it has seen kCounts(n) of
// everybody.
//   A peer posts kCounts(n) when it has begun call n, that is after it gave back the handle that last used these
//   buffers (buffers are chosen in the same order everywhere), and after it finished pulling from anybody else's.
// - A rank's experts write `out` of the buffers of dispatch n only after kRows(n) of everybody, which a peer posts
// after
//   it finished every earlier combine, so nobody still pulls the old results.
// - A rank rewrites its counts, or another's copy list, in call n only after it completed every earlier dispatch, that
//   is after kRows of everybody, which a peer posts after it has read the counts; and the lists are read before the
//   next kCounts is posted.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "exchange/call.h"
#include "exchange/layout.h"
#include "moetax/exchange/exchange.h"
#include "moetax/wire/rows.h"

namespace moetax {

// A set of row buffers, on every rank. Taken while a handle refers to it.
struct DispatchHandle::Buffers {
  int idx = 0;
  Window rows, out, gate;
};

// What a rank says about itself when it joins a dispatch; its counts [E] follow.
enum class SendKind : std::int32_t { kDispatch, kDispatchGrad, kRedispatch };
constexpr const char* name_of(SendKind kind) {
  constexpr const char* kNames[] = {"dispatch", "dispatch_grad", "redispatch"};
  return kNames[static_cast<int>(kind)];
}
struct alignas(64) Announcement {
  SendKind kind;
  std::int32_t buffers_idx;
};
inline constexpr std::size_t kLine = 64;

struct Exchange::Impl {
  using State = DispatchLayout::State;
  using Buffers = DispatchHandle::Buffers;
  // What a dispatch sends along a layout.
  struct Cargo {
    ConstRows rows;
    const RoutingTable* weights = nullptr;  // null: gate weights do not travel
    bool with_copy_lists = false;           // the layout is new, its copies have yet to be learned from the senders
  };

  // Set-up, in impl.cpp.
  Impl(Communicator& parent_comm, std::unique_ptr<Communicator> own_comm, const ExchangeOptions& opts);
  Result<void> make_windows(Deadline deadline);
  std::int64_t max_rows(Rank rank) const;
  std::int64_t max_copies(Rank from, Rank to) const;
  std::size_t list_offset(Rank from, Rank to) const;
  CopyList copy_list(Rank from, Rank to) const;
  Announcement& announcement(Rank rank) const { return *reinterpret_cast<Announcement*>(counts.at(rank)); }
  std::int32_t* counts_of(Rank rank) const {
    return reinterpret_cast<std::int32_t*>(counts.at(rank) + sizeof(Announcement));
  }

  // The calls, in exchange.cpp.
  Result<Dispatched> dispatch(ConstRows tokens, const RoutingTable& routing);
  Result<Dispatched> send_again(SendKind kind, const DispatchLayout& layout, const Cargo& cargo);
  Result<DispatchLayout> combine(DispatchHandle handle, const RoutingTable& routing, ConstRows addend, Rows out);
  Result<void> combine_grad(DispatchHandle handle, std::span<const float> d_gate, MatrixView<float> d_tokens,
                            MatrixView<float> d_weight);

  // Their checks and their steps between ranks, in impl.cpp.
  Result<void> check_rows(const char* what, std::int64_t tokens, ConstRows rows) const;
  Result<void> check_routing(const char* call, std::int64_t tokens, const RoutingTable& routing) const;
  Result<void> check_layout(const char* call, const DispatchLayout& layout) const;
  Result<std::shared_ptr<Buffers>> take_buffers(const char* call) const;
  std::shared_ptr<State> take_layout();
  void post_all(Channel channel, std::uint64_t value) const;
  Result<void> await_all(Call& call, Channel channel, Part idle) const;
  Result<void> meet_all(Call& call, Channel channel) const;
  Result<void> join_send(Call& call, SendKind kind, int buffers_idx) const;

  // Moving rows, in send.cpp and pull.cpp.
  Result<Dispatched> send(Call& call, std::shared_ptr<State> layout, std::shared_ptr<Buffers> buffers,
                          const Cargo& cargo);
  void push_rows(Call& call, const State& layout, const Buffers& buffers, ConstRows rows) const;
  void push_weights(const State& layout, const Buffers& buffers, const RoutingTable& routing) const;
  void pack_rows(Call& call, const State& layout, const Buffers& buffers, ConstRows rows) const;
  void take_copy_lists(State& layout) const;
  void copy_rows(Call& call, const State& layout, const Buffers& buffers) const;
  void pull_weighted(Call& call, const State& layout, const Buffers& buffers, const RoutingTable& routing,
                     ConstRows addend, Rows out) const;
  void pull_gradients(Call& call, const State& layout, const Buffers& buffers, MatrixView<float> d_tokens,
                      MatrixView<float> d_weight) const;
  Store store_for(std::int64_t rows) const;

  Communicator& parent;
  std::unique_ptr<Communicator> comm;
  ExchangeOptions options;
  ExpertPlacement placement;
  Rank self;
  std::size_t row_bytes;
  LayoutBuilder builder;
  std::vector<std::uint8_t> other_node;  // [R]
  std::vector<std::int64_t> max_tokens;  // [R]
  Window counts, lists;
  std::vector<const std::int32_t*> all_counts;  // [R]
  std::vector<CopyList> lists_out;              // [R] in the other ranks' memory, for this rank's rows
  std::vector<std::shared_ptr<Buffers>> buffer_sets;
  std::vector<std::shared_ptr<State>> layouts;  // grows to the number alive at once
  std::uint64_t number = 0;                     // of the last call
};

}  // namespace moetax
