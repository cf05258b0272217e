// What a FeedForward is made of. forward and backward are in files of their own.
#pragma once

#include <memory>
#include <vector>

#include "expert/gemm.h"
#include "expert/kernels.h"
#include "moetax/base/memory.h"
#include "moetax/expert/feed_forward.h"

namespace moetax {

struct FfnSaved::State {
  PageBuffer gate_up;  // [rows, 2I] of the dtype, then room for the padding of the last tile
  bool kept = false;   // false when the memory could not be had: the backward computes it again

  // Room for `rows` rows, or null.
  std::byte* reserve(std::int64_t rows, std::size_t row_bytes);
};

// Rows [begin, begin + rows) of the batch, all of one expert.
struct RowRange {
  int expert = 0;
  std::int64_t begin = 0;
  std::int64_t rows = 0;
};

struct FeedForward::Impl {
  FfnShape shape;
  DType dtype = DType::kBf16;
  int threads = 1;

  // Weights: one packed copy, and where each expert's matrices lie in it.
  PageBuffer packed;
  std::vector<dnnl::memory> w13, w2;
  std::vector<float> b13, b2;  // [experts, 2I], [experts, H], or empty
  PageBuffer plain;            // one matrix on its way to be packed; dropped by the first forward
  WeightReorder pack13, pack2;

  // Forward.
  std::unique_ptr<RowGemm> up, down;  // [g | u] = x W13^T,  y = a W2^T
  PageBuffer x_pad, gate_up, a, y_pad;

  // Backward. W13 and W2 of the expert at hand are packed again the other way round, one expert at a time.
  std::unique_ptr<RowGemm> d_up, d_down;  // d_x = d[g | u] W13,  d_a = d_y W2
  std::unique_ptr<GradGemm> grad_w13, grad_w2;
  WeightReorder turn13, turn2;
  PageBuffer turned;
  dnnl::memory turned13, turned2;
  std::vector<dnnl::memory> w13_turned_view, w2_turned_view;  // the same bytes as w13 and w2, read as their transposes
  PageBuffer d_y_pad, d_a, d_gate_up, weighted_a, d_x_pad;

  Result<void> build_products();
  Result<void> place_weights();
  Result<void> build_backward();
  Result<void> reserve_scratch();
  Result<void> check_expert(int expert) const;

  void forward_tile(const RowRange& tile, ConstRows in, Rows y, std::byte* kept);

  struct BackwardCall;
  void backward_expert(const RowRange& range, const BackwardCall& call);
  void clear_gradients(const RowRange& range, const FfnGradients& grads) const;
  void backward_tile(const RowRange& tile, std::int64_t at, const BackwardCall& call);
  void weight_gradients(const RowRange& chunk, const BackwardCall& call, bool accumulate);
  void bias_gradients(const RowRange& chunk, const BackwardCall& call);

  std::int64_t up_width() const { return 2 * shape.inter; }
  const float* bias13(int expert) const { return shape.bias ? b13.data() + expert * up_width() : nullptr; }
  const float* bias2(int expert) const { return shape.bias ? b2.data() + expert * shape.hidden : nullptr; }
  ActivationSpec activation() const { return {shape.activation, shape.clamp_limit, dtype, shape.inter}; }
};

// Copies whole rows, on up to `threads` threads.
void copy_dense_rows(const std::byte* from, std::byte* to, std::int64_t rows, std::size_t row_bytes, int threads);

// `rows` at their place, or, when the product wants `padded` > rows.rows of them, copied to `scratch`, which has room.
// The added rows hold whatever was there: rows do not influence each other.
const std::byte* padded_rows(ConstRows rows, std::int64_t padded, const PageBuffer& scratch, int threads);

}  // namespace moetax
