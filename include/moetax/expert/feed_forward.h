// Grouped SwiGLU feed-forward over a rank's experts, forward and backward. Shared experts are the case of one expert.
//
// For expert e and its rows x [n, H]:
//   [g | u] = x W13^T (+ b13)        W13 [2I, H]: gate rows first, then up rows
//   a = silu(g) * u                  or gpt-oss's clamped form: g' = min(g, limit), u' = clamp(u, -limit, limit),
//                                    a = (u' + 1) * g' * sigmoid(1.702 g')
//   y = a W2^T (+ b2)                W2 [H, I]
// bf16: inputs, weights and a are bf16, products accumulate in fp32, [g | u], a and y are rounded to bf16 once; biases
// are fp32. A row's result depends on that row and the weights only, not on the other rows, their number, or the
// threads.
//
// Objects here are used by one thread at a time, each by its own; they start OpenMP teams only when made for more than
// one thread. After create, nothing is built and nothing but the GEMM library allocates (it does, about 7 times a
// call).
//
//   auto ffn = FeedForward::create({.hidden = 2048, .inter = 1408, .experts = 64}, DType::kBf16, /*threads=*/2);
//   for (int e = 0; e < 64; ++e) MOETAX_TRY(ffn->set_weights(e, weights[e]));
//   ffn->forward({rows, count}, y, &saved);
//   ffn->backward({rows, count}, &saved, d_y, w, d_x, d_w, gradients, /*accumulate=*/false);
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "moetax/base/function_ref.h"
#include "moetax/base/matrix.h"
#include "moetax/base/result.h"

namespace moetax {

enum class Activation : std::uint8_t { kSwiGlu, kClampedSwiGlu };

struct FfnShape {
  std::int64_t hidden = 0;  // H
  std::int64_t inter = 0;   // I
  int experts = 0;          // local experts, may be 0
  Activation activation = Activation::kSwiGlu;
  float clamp_limit = 7.0f;  // kClampedSwiGlu only
  bool bias = false;
};

// Rows grouped by expert: expert e owns count[e] rows, the groups follow one another in expert order.
struct ExpertRows {
  ConstRows rows;                       // [N, H]
  std::span<const std::int32_t> count;  // [experts], sum N
};

// Weights of one expert as the caller has them, plain row-major fp32. Views only.
struct ExpertWeights {
  std::span<const float> w13;  // [2I, H]
  std::span<const float> w2;   // [H, I]
  std::span<const float> b13;  // [2I] or empty
  std::span<const float> b2;   // [H] or empty
};

// Gradients of all local experts, fp32, plain row-major, expert after expert; owned by the caller.
struct FfnGradients {
  std::span<float> d_w13;  // [experts, 2I, H]
  std::span<float> d_w2;   // [experts, H, I]
  std::span<float> d_b13;  // [experts, 2I] or empty
  std::span<float> d_b2;   // [experts, H] or empty
};

// What a forward keeps for its backward: [g | u]. Owned by the caller, reusable; grows, never shrinks. When the memory
// cannot be had nothing is kept, and the backward computes it again, to the same bits.
class FfnSaved {
 public:
  FfnSaved();
  ~FfnSaved();
  FfnSaved(FfnSaved&&) noexcept;
  FfnSaved& operator=(FfnSaved&&) noexcept;
  std::size_t bytes() const;
  struct State;
  State& state() { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

class FeedForward {
 public:
  // dtype of rows, weights and intermediates. kUsage: sizes out of range. kUnavailable: more weights than memory.
  // Everything that the GEMM library builds is built here, for every row count that can occur: some 30 ms the first
  // time, 2 ms for a shape the process has built before. Weights are zero until set.
  static Result<FeedForward> create(const FfnShape& shape, DType dtype, int threads);
  ~FeedForward();
  FeedForward(FeedForward&&) noexcept;
  FeedForward& operator=(FeedForward&&) noexcept;

  // Packs one expert's weights into the only copy kept. Spans of the wrong size: kUsage.
  Result<void> set_weights(int expert, const ExpertWeights& weights);
  // The same with weights made on the fly, a row at a time, for initialising without a second copy: row(matrix, i, out)
  // fills row i of w13 (matrix 0) or w2 (matrix 1); biases (2: b13, 3: b2) have one row. Called from as many threads at
  // once as the object was made for, in no order: `row` must not share state that it changes.
  Result<void> fill_weights(int expert, FunctionRef<void(int matrix, std::int64_t row, std::span<float> out)> row);

  // y [N, H] of in.rows; may not alias them. Experts without rows cost nothing. saved may be null (no backward).
  void forward(const ExpertRows& in, Rows y, FfnSaved* saved);

  // Given d_y [N, H] and the gate weight w [N] of each row (empty: all one), with the upstream gradient of y_i being
  // w_i * d_y_i:  d_x [N, H] (overwritten; may not alias d_y); d_gate [N] = <d_y_i, y_i>, the gradient of w_i (empty:
  // not wanted); grads: the experts' weight gradients, added to what is there when `accumulate`, else overwritten
  // (zeros for experts without rows). `in` is the forward's input; `saved` the forward's, or null: intermediates are
  // recomputed from `in`, to the same bits. Weight gradients are sums over an expert's rows in their order, so their
  // bits depend on these rows only, not on other experts or the threads.
  void backward(const ExpertRows& in, FfnSaved* saved, ConstRows d_y, std::span<const float> w, Rows d_x,
                std::span<float> d_gate, const FfnGradients& grads, bool accumulate);

  const FfnShape& shape() const;
  std::size_t weight_bytes() const;  // packed, all local experts
  double flops_per_row() const;      // 6 H I forward

  struct Impl;

 private:
  explicit FeedForward(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// y [rows, N] fp32 = x [rows, K] W^T, W [N, K]: the router's matrix product, with the row independence of the above.
class Linear {
 public:
  static Result<Linear> create(std::int64_t in_features, std::int64_t out_features, DType dtype, int threads);
  ~Linear();
  Linear(Linear&&) noexcept;
  Linear& operator=(Linear&&) noexcept;
  Result<void> set_weights(std::span<const float> w);  // [N, K]
  void forward(ConstRows x, MatrixView<float> y);
  // d_x [rows, K] fp32 (overwritten) = d_y W;  d_w [N, K] fp32 += or = d_y^T x.
  void backward(ConstRows x, MatrixView<const float> d_y, MatrixView<float> d_x, std::span<float> d_w, bool accumulate);
  struct Impl;

 private:
  explicit Linear(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// What runs the matrix products here: library, version, instruction set, and whether bf16 products are native or bf16
// weights are converted to fp32 in tiles. One line for `info` and the bill.
std::string gemm_description();

// The slow, readable oracle: double precision from plain weights, one row at a time.
void feed_forward_reference(const FfnShape& shape, std::span<const ExpertWeights> weights, const ExpertRows& in,
                            MatrixView<double> y);

}  // namespace moetax
