// What MoeLayer's forward and backward share.
#pragma once

#include <optional>
#include <vector>

#include "moetax/layer/moe_layer.h"

namespace moetax {

struct MoeLayer::Impl {
  Impl(ExpertParallel& ep, const LayerConfig& c, Activations a, Linear r, FeedForward e)
      : parallel(ep), config(c), activations(a), router(std::move(r)), experts(std::move(e)) {}

  ExpertParallel& parallel;
  LayerConfig config;
  Activations activations;
  Linear router;  // [E, H]
  FeedForward experts;
  std::optional<FeedForward> shared;
  std::vector<float> router_bias;     // [E] or empty
  std::vector<float> selection_bias;  // [E] or empty

  // Of the last forward.
  RoutingTable routing;
  std::vector<std::int32_t> expert_rows;
  std::int64_t tokens = 0;
  std::int64_t rows = 0;

  // Scratch, kept between steps.
  std::vector<float> logits;
  PageBuffer shared_out;  // [T, H]
  std::vector<float> d_gate, d_weight, d_logits, d_router_hidden;
  PageBuffer d_shared_hidden;  // [T, H]
  LayerGradients partial;      // this rank's share of gradients that are reduced

  int threads() const { return parallel.options().threads; }
  Observer* observer() const { return parallel.options().observer; }
  Deadline deadline() const { return Deadline::in_seconds(parallel.options().deadline_s); }

  // A part of an overlapped forward's tokens: what its calls need and leave.
  struct TokenPart {
    std::int64_t first = 0;  // of the batch's tokens
    ConstRows hidden, addend;
    Rows out;
    RoutingTable routing;
    Dispatched sent;
    ExchangeQueue::Ticket dispatched = 0, combined = 0;
  };
  struct SendPart {
    Exchange* exchange;
    TokenPart* part;
    Result<void> operator()() const;
  };
  struct ReturnPart {
    Exchange* exchange;
    TokenPart* part;
    Result<void> operator()() const;
  };
  std::vector<TokenPart> parts;
  std::vector<SendPart> send_part;
  std::vector<ReturnPart> return_part;
  std::vector<std::int32_t> part_rows;  // of each local expert, in the parts so far

  // Lets the other ranks know why this one stops, so that they need not wait for their deadline.
  Result<void> told(Result<void> result) const {
    if (!result) parallel.world().fail(result.error());
    return result;
  }

  // The whole of forward and backward, and their named steps.
  Result<void> forward(ConstRows hidden, Rows out, LayerSaved* saved, const RoutingTable* given,
                       std::int64_t first_token);
  Result<void> backward(ConstRows hidden, LayerSaved& saved, ConstRows d_out, MatrixView<float> d_hidden,
                        LayerGradients& gradients, bool accumulate);
  Result<void> forward_in_parts(ConstRows hidden, Rows out, const RoutingTable* given, std::int64_t first_token);
  Result<void> run_parts(ConstRows hidden);
  void cut_into_parts(ConstRows hidden, Rows out);
  void count_part_rows();
  Result<void> check_shape(ConstRows hidden, ConstRows out) const;
  Result<void> route_tokens(ConstRows hidden, const RoutingTable* given, std::int64_t first_token);
  Result<ConstRows> run_shared_experts(ConstRows hidden, LayerSaved* saved);
  Result<void> run_experts(const ExpertBatch& batch, LayerSaved* saved);
  void keep(DispatchLayout layout, LayerSaved& saved);

  struct ExpertInput {
    ConstRows rows;
    DispatchHandle handle;  // of the redispatch, when recomputing
  };
  Result<ExpertInput> expert_input(ConstRows hidden, LayerSaved& saved);
  Result<void> experts_backward(ConstRows hidden, LayerSaved& saved, ConstRows d_out, MatrixView<float> d_hidden,
                                LayerGradients& gradients, bool accumulate);
  Result<void> shared_backward(ConstRows hidden, LayerSaved& saved, ConstRows d_out, MatrixView<float> d_hidden);
  void router_backward(ConstRows hidden, LayerSaved& saved, MatrixView<float> d_hidden);
  Result<void> reduce_gradients(LayerGradients& gradients, bool accumulate);
  void size_gradients(LayerGradients& gradients) const;
};

// Grows `buffer` to at least `bytes`; the contents are lost.
Result<void> ensure(PageBuffer& buffer, std::size_t bytes);

}  // namespace moetax
