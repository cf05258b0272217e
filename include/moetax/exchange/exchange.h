// Dispatch and combine: the two all-to-alls of expert parallelism, and their mirrors for the backward pass.
//
//   hidden[T,H] + RoutingTable ── dispatch ──▶ ExpertBatch{rows[N,H] by local expert} + DispatchHandle
//   y[N,H] (written into batch.out) ── combine(move(handle)) ──▶ out[T,H] = addend + sum_k weight[t,k] * y(t,k)
//   backward: combine's mirror is a dispatch of d_out, dispatch's mirror is a combine of d_x; same layout, never routed
//   again
//
// Rows travel once per destination rank, pushed by their sender or, where there are few, fetched by the receiver after
// a single round of flags. They lie expert-major without padding, inside an expert in global token order, so an expert
// sees the same rows in the same order whatever the number of ranks. The sum over k is taken in top-k order in fp32 and
// rounded once: outputs have the same bits for any number of ranks. Collective: every rank makes the same calls in the
// same order, also with zero tokens. Used from the rank's thread. In the steady state no call allocates.
//
// Errors: whatever a call returns as an Error has been told to the other ranks (Communicator::fail), so that a mistake
// on one rank, say a bad expert id, ends the waits of all and names its rank; the exchange is then only good for
// destruction. A rank that is late, dead or makes another call than the others is named in kPeerFailed.
//
// What the observer hears: a call is a span of Part::kLaunch (checks, counts, layout, flags) around spans of kWait (a
// peer has not yet made the same call), kWire and kPack. In dispatch, copies from or to a peer's memory and the idle
// time until the peers' rows are complete are kWire, copies inside this rank's own rows are kPack. Combine reads all K
// rows of a token in one pass, which is kWire when rows of a peer are among them and kPack otherwise (always, on a
// single rank). ExchangeRecord's bytes are row bytes, counted where the rows move: logical once per (token, destination
// rank) for dispatch and its like, once per (token, expert) for combine and its mirror. What steers the rows (counts,
// copy lists, gate weights) is not in them. Ranks in records and errors are those of the world, as everywhere.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "moetax/base/clock.h"
#include "moetax/base/exchange_algorithm.h"
#include "moetax/base/matrix.h"
#include "moetax/base/observer.h"
#include "moetax/base/result.h"
#include "moetax/route/routing_table.h"
#include "moetax/transport/communicator.h"

namespace moetax {

struct ExchangeOptions {
  std::int64_t max_tokens = 0;  // of this rank; ranks may differ
  std::int64_t hidden = 0;      // H, the same on all ranks, as are the next three
  int experts = 0;              // E, spread as ExpertPlacement says
  int topk = 0;                 // K <= kMaxTopK
  DType dtype = DType::kBf16;   // of rows on the wire, both ways
  int in_flight = 1;            // handles that may be alive at once, each with its own buffers (2: double buffering)
  int threads = 1;
  ExchangeAlgorithm algorithm = ExchangeAlgorithm::kFlat;
  bool fp32_sums = false;        // two-level: sums of a node come back unrounded, in twice the bytes of bf16 rows
  double deadline_s = 10;        // of every wait
  Observer* observer = nullptr;  // may be null; must outlive the exchange
};

// The rows this rank's experts have to work on. Valid until the handle is combined or dropped.
struct ExpertBatch {
  ConstRows rows;                       // [N, H]
  Rows out;                             // [N, H], where the experts' results must be written before combine
  std::span<const std::int32_t> count;  // [local experts] rows of each
  std::span<const float> weight;        // [N] gate weight of each row (dispatch_grad only; empty after dispatch)
};

// Where each (token, k) row lies on which rank, and who sends what. Kept by a forward for its backward; its memory goes
// back to the exchange when the last handle or layout that refers to it is gone.
class DispatchLayout {
 public:
  DispatchLayout() = default;
  DispatchLayout(DispatchLayout&&) noexcept = default;
  DispatchLayout& operator=(DispatchLayout&&) noexcept = default;
  std::int64_t tokens() const;                  // T of this rank
  std::int64_t rows() const;                    // N
  std::span<const std::int32_t> count() const;  // rows per local expert
  struct State;

 private:
  friend class Exchange;
  explicit DispatchLayout(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

// Proof of a dispatch, to be given to exactly one combine: `combine(std::move(handle), ...)`. A handle that is dropped
// instead gives its buffers back; like every call, all ranks must do that at the same place.
class [[nodiscard]] DispatchHandle {
 public:
  DispatchHandle() = default;
  DispatchHandle(DispatchHandle&&) noexcept = default;
  DispatchHandle& operator=(DispatchHandle&&) noexcept = default;
  const DispatchLayout& layout() const { return layout_; }
  struct Buffers;

 private:
  friend class Exchange;
  DispatchLayout layout_;
  std::shared_ptr<Buffers> buffers_;
};

struct Dispatched {
  ExpertBatch batch;
  DispatchHandle handle;
};

class Exchange {
 public:
  // Collective. Checks that all ranks agree on hidden, experts, topk, dtype and in_flight (kPeerFailed with both
  // values), reserves the windows. The exchange talks over a communicator of its own, split off `comm`, so that several
  // exchanges can share one; `comm` must outlive it. Sizes out of range: kUsage.
  static Result<Exchange> create(Communicator& comm, const ExchangeOptions& options);
  ~Exchange();
  Exchange(Exchange&&) noexcept;
  Exchange& operator=(Exchange&&) noexcept;

  // tokens [T, H], T = routing.tokens() <= max_tokens. Expert ids outside [0, E) or repeated within a token: kBadInput
  // naming the token. Another shape, or more handles alive than in_flight: kUsage.
  Result<Dispatched> dispatch(ConstRows tokens, const RoutingTable& routing);

  // out [T, H] = addend (may be empty) + weighted sum; out must not alias addend's rows unless they are the same rows.
  // Returns the layout for the backward pass.
  Result<DispatchLayout> combine(DispatchHandle handle, const RoutingTable& routing, ConstRows addend, Rows out);

  // Mirror of combine: sends d_out [T, H] and the gate weights to the experts. batch.weight [N] is filled.
  Result<Dispatched> dispatch_grad(const DispatchLayout& layout, const RoutingTable& routing, ConstRows d_out);

  // Mirror of dispatch: d_tokens [T, H] fp32 = sum over k of batch.out rows in top-k order;
  // d_weight [T, K] = d_gate [N] of the row's expert rank.
  Result<void> combine_grad(DispatchHandle handle, std::span<const float> d_gate, MatrixView<float> d_tokens,
                            MatrixView<float> d_weight);

  // Sends the tokens again along a kept layout, without routing: for recomputed activations.
  Result<Dispatched> redispatch(const DispatchLayout& layout, ConstRows tokens);
  // Gives a handle back without a combine (after redispatch), which is what dropping it does, with a check that there
  // was one (kUsage).
  Result<void> release(DispatchHandle handle);

  // Collective: from the next dispatch on rows travel between nodes in another way. Only while no handle or layout is
  // alive, because what went out in one way comes back in it (kUsage otherwise). Ranks that do not all change are told
  // at their next call. Costs no communication.
  Result<void> set_algorithm(ExchangeAlgorithm algorithm);
  ExchangeAlgorithm algorithm() const;

  const ExpertPlacement& placement() const;
  std::size_t reserved_bytes() const;  // this rank's worst case, address space
  std::size_t touched_bytes() const;   // of it, what has pages now

  struct Impl;

 private:
  explicit Exchange(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moetax
