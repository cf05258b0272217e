// The slow, readable layer: double precision, one process, one token at a time. And the harness that runs the real one
// on ranks as threads, over the same global tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "moetax/layer/moe_layer.h"

namespace moetax::testing {

// A layer's weights, plain, as the layer holds them: rounded to its dtype. Rounding is left out for `exact`.
struct PlainLayer {
  LayerConfig config = {};
  std::vector<double> router = {}, router_bias = {}, selection_bias = {};
  std::vector<std::vector<double>> w13 = {}, w2 = {}, b13 = {}, b2 = {};  // one per expert
  std::vector<double> shared_w13 = {}, shared_w2 = {};
};
PlainLayer plain_layer(const LayerConfig& config, std::uint64_t seed, int layer_idx);

// hidden [T, H] as doubles; the chosen experts come from `routing`, their weights are computed here from the logits.
// Returns out [T, H].
std::vector<double> oracle_forward(const PlainLayer& layer, const std::vector<double>& hidden,
                                   const RoutingTable& routing);

// logits [T, E] and the routing of the reference router.
RoutingTable oracle_routing(const PlainLayer& layer, const std::vector<double>& hidden);

// One run of the real layer over `ranks` thread ranks. Global tokens are split as `tokens_per_rank` says.
struct LayerRun {
  int ranks = 1;
  int ep_size = 0;
  std::vector<std::int64_t> tokens_per_rank = {};
  LayerConfig config = {};
  int overlap = 1;
  int ranks_per_node = 0;  // 0: all on one
  ExchangeAlgorithm algorithm = ExchangeAlgorithm::kFlat;
  Activations activations = Activations::kKeep;
  bool backward = false;
  int steps = 1;  // backward steps; more than one accumulates
  std::uint64_t seed = 7;
  const RoutingTable* given = nullptr;  // of all global tokens
  std::vector<float> selection_bias = {};
  std::function<void(Rows hidden, std::int64_t first_token)> edit_tokens = {};
};

struct LayerResult {
  std::vector<Error> errors;           // one per rank that failed
  std::vector<float> hidden, out;      // [T, H] global token order
  std::vector<float> d_out, d_hidden;  // [T, H]
  RoutingTable routing;                // global token order
  LayerGradients gradients;            // experts in global order (of the first replica), router and shared of rank 0
  std::vector<LayerGradients> per_rank;
};
LayerResult run_layer(const LayerRun& run);

// || a - b || / || b ||
double relative_error(const std::vector<float>& a, const std::vector<double>& b);
double relative_error(const std::vector<float>& a, const std::vector<float>& b);
std::vector<double> doubles(const std::vector<float>& values);

// Small layers that cover every router and expert form.
LayerConfig deepseek_v2_like(DType dtype);
LayerConfig deepseek_v3_like(DType dtype);
LayerConfig mixtral_like(DType dtype);
LayerConfig gpt_oss_like(DType dtype);

}  // namespace moetax::testing
