// One Mixture-of-Experts layer under expert parallelism: the main job.
//
//   hidden[T,H] ─ router ─ dispatch ─ experts ─ combine ─▶ out[T,H], plus the shared experts, which every rank holds
//
//   MOETAX_ASSIGN(ExpertParallel parallel, ExpertParallel::create(world, {.max_tokens = T, .hidden = H, ...}));
//   MOETAX_ASSIGN(MoeLayer layer, MoeLayer::create(parallel, config));
//   MOETAX_TRY(layer.init_weights(seed, 0));
//   MOETAX_TRY(layer.forward(hidden, out, nullptr));
//
// Collective: every rank makes the same calls in the same order, also with zero tokens. Used from the rank's thread.
// A rank whose call fails, for whatever reason, has told the others: their calls fail too and name it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "moetax/base/matrix.h"
#include "moetax/base/memory.h"
#include "moetax/base/result.h"
#include "moetax/expert/feed_forward.h"
#include "moetax/layer/expert_parallel.h"
#include "moetax/route/router.h"

namespace moetax {

struct LayerConfig {
  std::int64_t hidden = 0;        // H
  std::int64_t inter = 0;         // I of a routed expert
  std::int64_t shared_inter = 0;  // of the shared experts together; 0: none
  RouterConfig router;            // E, K and the rule
  bool router_bias = false;       // a learned bias added to the logits
  Activation activation = Activation::kSwiGlu;
  float clamp_limit = 7.0f;
  bool expert_bias = false;
  DType dtype = DType::kBf16;  // of tokens, weights and the wire
};

// What a forward leaves for its backward.
enum class Activations : std::uint8_t {
  kKeep,       // the expert rows and intermediates
  kRecompute,  // no rows: the backward sends the tokens again along the kept layout and runs the experts again
};

// Gradients, fp32, plain row-major as in FfnGradients. Sums over all tokens of all ranks that hold the parameter, never
// averages: router and shared over the whole world, routed experts over their replicas. Sized by the first backward.
struct LayerGradients {
  std::vector<float> router;            // [E, H]
  std::vector<float> router_bias;       // [E] or empty
  std::vector<float> w13, w2, b13, b2;  // this rank's experts
  std::vector<float> shared_w13, shared_w2;
};

// What one forward keeps for its backward. Reusable; grows, never shrinks.
struct LayerSaved {
  RoutingTable routing;
  std::vector<float> logits;  // [T, E]
  DispatchLayout layout;
  PageBuffer rows;  // [N, H] as the experts saw them (kKeep)
  FfnSaved experts, shared;
};

class MoeLayer {
 public:
  // `parallel` must outlive the layer and agree with its shape (kUsage). Weights are zero until set.
  static Result<MoeLayer> create(ExpertParallel& parallel, const LayerConfig& config,
                                 Activations activations = Activations::kKeep);
  ~MoeLayer();
  MoeLayer(MoeLayer&&) noexcept;
  MoeLayer& operator=(MoeLayer&&) noexcept;

  // Pseudo-random weights of variance 1 / fan_in, from (seed, layer_idx) and the parameter's place alone: the same
  // model whatever the number of ranks. Makes only this rank's experts, a row at a time.
  Result<void> init_weights(std::uint64_t seed, int layer_idx);

  Result<void> set_router(std::span<const float> w, std::span<const float> bias);  // [E, H]; [E] or empty
  void set_selection_bias(std::span<const float> bias);                            // [E]: picks only, see RouterConfig
  Result<void> set_expert(ExpertId expert, const ExpertWeights& weights);          // no effect if not held here
  Result<void> set_shared(const ExpertWeights& weights);

  // hidden [T, H] -> out [T, H], T <= max_tokens; the two must not overlap. `saved` may be null: no backward follows.
  // `given`, when not null, replaces the router's choice; the router runs all the same, so that its time is counted.
  // `first_token` is the global index of row 0, for error messages.
  Result<void> forward(ConstRows hidden, Rows out, LayerSaved* saved, const RoutingTable* given = nullptr,
                       std::int64_t first_token = 0);

  // d_out [T, H] -> d_hidden [T, H] fp32 and the gradients, added to what is there when `accumulate`. `hidden` and
  // `saved` are the forward's. Nothing is routed again. The bits of d_hidden and of the routed experts' gradients do
  // not depend on the number of ranks (with one replica); those of router and shared experts do, in fp32 rounding.
  Result<void> backward(ConstRows hidden, LayerSaved& saved, ConstRows d_out, MatrixView<float> d_hidden,
                        LayerGradients& gradients, bool accumulate);

  const RoutingTable& routing() const;                // of the last forward
  std::span<const std::int32_t> expert_rows() const;  // rows of each local expert in the last forward
  std::size_t weight_bytes() const;                   // on this rank, packed
  // Arithmetic of the last forward on this rank, and of its backward: multiply-adds counted as two.
  double forward_flops() const;
  double backward_flops() const;

  struct Impl;

 private:
  explicit MoeLayer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The value that init_weights gives a parameter's element, before rounding to the layer's dtype. For oracles.
enum class Parameter : std::uint8_t { kRouter, kRouterBias, kW13, kW2, kB13, kB2, kSharedW13, kSharedW2 };
void initial_row(const LayerConfig& config, std::uint64_t seed, int layer_idx, Parameter parameter, ExpertId expert,
                 std::int64_t row, std::span<float> out);

}  // namespace moetax
