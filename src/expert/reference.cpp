// The oracle: formulas, in double, a row at a time.
#include <algorithm>
#include <cassert>
#include <cmath>
#include <vector>

#include "moetax/expert/feed_forward.h"

namespace moetax {
namespace {

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

double activate(const FfnShape& shape, double g, double u) {
  if (shape.activation == Activation::kSwiGlu) return g * sigmoid(g) * u;
  const double limit = shape.clamp_limit;
  g = std::min(g, limit);
  u = std::clamp(u, -limit, limit);
  return (u + 1.0) * g * sigmoid(1.702 * g);
}

// out = W x + b, W [out.size(), x.size()].
void affine(std::span<const float> w, std::span<const float> b, std::span<const double> x, std::span<double> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    double sum = b.empty() ? 0.0 : b[i];
    for (std::size_t j = 0; j < x.size(); ++j) sum += static_cast<double>(w[i * x.size() + j]) * x[j];
    out[i] = sum;
  }
}

}  // namespace

void feed_forward_reference(const FfnShape& shape, std::span<const ExpertWeights> weights, const ExpertRows& in,
                            MatrixView<double> y) {
  std::vector<double> x(shape.hidden), gate_up(2 * shape.inter), a(shape.inter);
  std::int64_t row = 0;
  for (int e = 0; e < shape.experts; ++e) {
    for (std::int64_t end = row + in.count[e]; row < end; ++row) {
      for (std::int64_t j = 0; j < shape.hidden; ++j) x[j] = element(in.rows, row, j);
      affine(weights[e].w13, weights[e].b13, x, gate_up);
      for (std::int64_t j = 0; j < shape.inter; ++j) a[j] = activate(shape, gate_up[j], gate_up[shape.inter + j]);
      affine(weights[e].w2, weights[e].b2, a, y.row_span(row));
    }
  }
}

}  // namespace moetax
