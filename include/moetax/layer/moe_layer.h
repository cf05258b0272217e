// One Mixture-of-Experts layer under expert parallelism: the main job.
//
//   hidden[T,H] ─ router ─ dispatch ─ experts ─ combine ─▶ out[T,H], plus the shared experts, which every rank holds
//
// The world of R ranks is R / ep_size replicas of ep_size ranks each: rank r holds block r % ep_size of the experts and
// exchanges tokens with the ranks of its replica. Every rank makes the same calls in the same order.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "moetax/base/matrix.h"
#include "moetax/base/memory.h"
#include "moetax/base/observer.h"
#include "moetax/base/result.h"
#include "moetax/exchange/exchange.h"
#include "moetax/expert/feed_forward.h"
#include "moetax/route/router.h"
#include "moetax/transport/communicator.h"

namespace moetax {

struct LayerConfig {
  std::int64_t hidden = 0;        // H
  std::int64_t inter = 0;         // I of a routed expert
  std::int64_t shared_inter = 0;  // of the shared experts together; 0: none
  RouterConfig router;            // E and K
  bool router_bias = false;       // a learned bias added to the logits
  Activation activation = Activation::kSwiGlu;
  float clamp_limit = 7.0f;
  bool expert_bias = false;
  DType dtype = DType::kBf16;
};

enum class Activations : std::uint8_t {
  kKeep,       // the forward keeps what the backward needs
  kRecompute,  // the backward sends the tokens again along the kept layout and runs the experts again; never re-routed
};

struct LayerOptions {
  std::int64_t max_tokens = 0;  // of this rank
  int ep_size = 0;              // ranks per replica; 0: all
  int threads = 1;
  bool backward = false;
  Activations activations = Activations::kKeep;
  double deadline_s = 10;
  Observer* observer = nullptr;
};

// Gradients, fp32, plain row-major. Sums over all tokens of all ranks that hold the parameter, never averages:
// router and shared over the whole world, routed experts over their replicas.
struct LayerGradients {
  std::vector<float> router;                 // [E, H]
  std::vector<float> router_bias;            // [E] or empty
  std::vector<float> w13, w2, b13, b2;       // this rank's experts, see FfnGradients
  std::vector<float> shared_w13, shared_w2;  // [2 Is, H], [H, Is]
};

// What one forward keeps for its backward. Reusable.
struct LayerSaved {
  PageBuffer rows;  // [N, H] as the experts saw them (kKeep)
  FfnSaved experts, shared;
  RoutingTable routing;
  std::vector<float> logits;  // [T, E]
  DispatchLayout layout;
};

class MoeLayer {
 public:
  // Collective. `world` must outlive the layer. Weights are zero until set.
  static Result<MoeLayer> create(Communicator& world, const LayerConfig& config, const LayerOptions& options);
  ~MoeLayer();
  MoeLayer(MoeLayer&&) noexcept;
  MoeLayer& operator=(MoeLayer&&) noexcept;

  // Pseudo-random weights of N(0, 1/fan_in) from (seed, layer_idx, parameter, element): the same model whatever the
  // number of ranks. Makes only this rank's experts.
  Result<void> init_weights(std::uint64_t seed, int layer_idx);

  Result<void> set_router(std::span<const float> w, std::span<const float> bias);  // [E, H], [E] or empty
  void set_selection_bias(std::span<const float> bias);                            // [E], picks only
  Result<void> set_expert(ExpertId expert, const ExpertWeights& weights);          // ignored if not held here
  Result<void> set_shared(const ExpertWeights& weights);

  // hidden [T, H] -> out [T, H], T <= max_tokens. `first_token` names tokens in errors. `saved` may be null.
  // `given`, when not null, replaces the router's choice (the router runs all the same, so that its time is counted).
  Result<void> forward(ConstRows hidden, Rows out, LayerSaved* saved, const RoutingTable* given = nullptr,
                       std::int64_t first_token = 0);

  // d_out [T, H] -> d_hidden [T, H] fp32 and gradients (sized by the call; added to when `accumulate`).
  // `hidden` and `saved` are the forward's.
  Result<void> backward(ConstRows hidden, LayerSaved& saved, ConstRows d_out, MatrixView<float> d_hidden,
                        LayerGradients& gradients, bool accumulate);

  const RoutingTable& routing() const;                // of the last forward
  std::span<const std::int32_t> expert_rows() const;  // rows of each local expert in the last forward
  const ExpertPlacement& placement() const;
  std::size_t weight_bytes() const;
  std::size_t rows_reserved_bytes() const;
  std::size_t rows_touched_bytes() const;
  double flops(std::int64_t tokens) const;  // of one forward on this rank's own tokens and received rows, last step

  struct Impl;

 private:
  explicit MoeLayer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moetax
