// A random feed-forward problem, and the double-precision results its fast paths are held to.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "moetax/base/random.h"
#include "moetax/expert/feed_forward.h"

namespace moetax::test {

// Largest relative error of rounding a number to the type.
inline double unit_roundoff(DType dtype) {
  return dtype == DType::kBf16 ? 0x1p-9 : 0x1p-24;
}

inline float rounded(float value, DType dtype) {
  return dtype == DType::kBf16 ? to_float(to_bf16(value)) : value;
}

// N(0, scale^2), exact in the dtype.
inline std::vector<float> normals(std::int64_t count, std::uint64_t stream, double scale, DType dtype) {
  const RandomStream random(7, stream);
  std::vector<float> values(count);
  for (std::int64_t i = 0; i < count; ++i) values[i] = rounded(random.normal(i) * static_cast<float>(scale), dtype);
  return values;
}

// Dense rows of a dtype that own their memory; exactly as long as needed, so that the address sanitizer sees a read
// beyond the last row.
class OwnedRows {
 public:
  OwnedRows(DType dtype, std::int64_t rows, std::int64_t cols)
      : bytes_(static_cast<std::size_t>(rows * cols) * size_of(dtype)), view_{bytes_.data(), dtype, rows, cols} {}
  OwnedRows(DType dtype, std::int64_t rows, std::int64_t cols, const std::vector<float>& values)
      : OwnedRows(dtype, rows, cols) {
    for (std::int64_t i = 0; i < rows * cols; ++i) set_element(view_, i / cols, i % cols, values[i]);
  }
  OwnedRows(const OwnedRows&) = delete;
  OwnedRows(OwnedRows&& other) noexcept = default;  // a moved vector keeps its storage, so the view stays valid

  Rows view() const { return view_; }
  std::vector<std::byte> row(std::int64_t i) const { return {view_.row(i), view_.row(i) + view_.row_bytes()}; }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
  Rows view_;
};

struct Weights {
  std::vector<float> w13, w2, b13, b2;
  ExpertWeights view() const { return {w13, w2, b13, b2}; }
};

// Weights, rows, and an upstream gradient with gate weights.
struct Problem {
  FfnShape shape;
  DType dtype;
  std::vector<std::int32_t> count;
  std::int64_t rows;
  std::vector<Weights> weights;
  OwnedRows x, d_y;
  std::vector<float> w;

  Problem(const FfnShape& s, DType d, std::vector<std::int32_t> c)
      : shape(s),
        dtype(d),
        count(std::move(c)),
        rows(std::accumulate(count.begin(), count.end(), std::int64_t{0})),
        x(d, rows, s.hidden, normals(rows * s.hidden, 1000, 1.0, d)),
        d_y(d, rows, s.hidden, normals(rows * s.hidden, 1001, 1.0, d)),
        w(normals(rows, 1002, 1.0, DType::kFp32)) {
    shape.experts = static_cast<int>(count.size());
    const double by_hidden = 1 / std::sqrt(s.hidden), by_inter = 1 / std::sqrt(s.inter);
    for (std::uint64_t e = 0; e < count.size(); ++e) {
      Weights one{normals(2 * s.inter * s.hidden, 4 * e, by_hidden, d),
                  normals(s.hidden * s.inter, 4 * e + 1, by_inter, d),
                  {},
                  {}};
      if (s.bias) {
        one.b13 = normals(2 * s.inter, 4 * e + 2, 0.5, DType::kFp32);
        one.b2 = normals(s.hidden, 4 * e + 3, 0.5, DType::kFp32);
      }
      weights.push_back(std::move(one));
    }
  }

  ExpertRows in() const { return {x.view(), count}; }
  std::vector<ExpertWeights> views() const {
    std::vector<ExpertWeights> all;
    for (const Weights& one : weights) all.push_back(one.view());
    return all;
  }
  FeedForward make(int threads = 1) const {
    Result<FeedForward> made = FeedForward::create(shape, dtype, threads);
    EXPECT_TRUE(made) << made.error().message;
    for (int e = 0; e < shape.experts; ++e) EXPECT_TRUE(made->set_weights(e, weights[e].view()));
    return std::move(*made);
  }
  OwnedRows forward(FeedForward& ffn, FfnSaved* saved = nullptr) const {
    OwnedRows y(dtype, rows, shape.hidden);
    ffn.forward(in(), y.view(), saved);
    return y;
  }
};

struct Gradients {
  OwnedRows d_x;
  std::vector<float> d_gate, d_w13, d_w2, d_b13, d_b2;

  explicit Gradients(const Problem& p, float before = 0)
      : d_x(p.dtype, p.rows, p.shape.hidden),
        d_gate(p.rows),
        d_w13(p.count.size() * 2 * p.shape.inter * p.shape.hidden, before),
        d_w2(p.count.size() * p.shape.inter * p.shape.hidden, before),
        d_b13(p.shape.bias ? p.count.size() * 2 * p.shape.inter : 0, before),
        d_b2(p.shape.bias ? p.count.size() * p.shape.hidden : 0, before) {}
  void run(const Problem& p, FeedForward& ffn, FfnSaved* saved, bool accumulate = false) {
    ffn.backward(p.in(), saved, p.d_y.view(), p.w, d_x.view(), d_gate, {d_w13, d_w2, d_b13, d_b2}, accumulate);
  }
  bool operator==(const Gradients& o) const {
    return d_x.bytes() == o.d_x.bytes() && d_gate == o.d_gate && d_w13 == o.d_w13 && d_w2 == o.d_w2 &&
           d_b13 == o.d_b13 && d_b2 == o.d_b2;
  }
};

}  // namespace moetax::test
