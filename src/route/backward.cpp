// The gradient of the router. With s the scores, S the sum of the chosen ones, g the gradient of the weights:
//   not renormalised  d s_k = scale g_k
//   renormalised      d s_k = scale / S (g_k - mean),   mean = sum_k g_k s_k / S
//   sigmoid           d x_e = s_e (1 - s_e) d s_e
//   softmax           d x_e = s_e (d s_e - sum_k s_k d s_k),  where the sum is 0 when renormalised
// so that only a softmax that is not renormalised reaches experts that were not chosen.
#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>

#include "moetax/base/parallel.h"
#include "moetax/route/router.h"
#include "route/kernels.h"

namespace moetax {
namespace {

constexpr std::int64_t kTokenGrain = 64;

using PerChoice = std::array<double, kMaxTopK>;

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

// s_k / S. Sigmoid scores are taken over exp(top), which cancels, lest tiny ones give 0 / 0.
PerChoice shares(Score score, std::span<const float> logits, std::span<const std::int32_t> expert) {
  double top = logits[expert[0]];
  for (const std::int32_t e : expert) top = std::max<double>(top, logits[e]);
  if (score == Score::kSigmoid) top = std::min(top, 0.0);
  PerChoice share;
  double sum = 0;
  for (std::size_t k = 0; k < expert.size(); ++k) {
    const double x = logits[expert[k]];
    share[k] = score == Score::kSoftmax ? std::exp(x - top) : std::exp(std::min(x, 0.0) - top) * sigmoid(std::abs(x));
    sum += share[k];
  }
  for (std::size_t k = 0; k < expert.size(); ++k) share[k] /= sum;
  return share;
}

void renormalized_grad(const RouterConfig& config, std::span<const float> logits, std::span<const std::int32_t> expert,
                       const float* d_weight, float* d_logits) {
  const PerChoice share = shares(config.score, logits, expert);
  double mean = 0;
  for (std::size_t k = 0; k < expert.size(); ++k) mean += d_weight[k] * share[k];
  for (std::size_t k = 0; k < expert.size(); ++k) {
    const double slope = config.score == Score::kSoftmax ? 1.0 : sigmoid(-static_cast<double>(logits[expert[k]]));
    d_logits[expert[k]] += static_cast<float>(config.scale * share[k] * (d_weight[k] - mean) * slope);
  }
}

void sigmoid_grad(const RouterConfig& config, std::span<const float> logits, std::span<const std::int32_t> expert,
                  const float* d_weight, float* d_logits) {
  for (std::size_t k = 0; k < expert.size(); ++k) {
    const double x = logits[expert[k]];
    d_logits[expert[k]] += static_cast<float>(config.scale * d_weight[k] * sigmoid(x) * sigmoid(-x));
  }
}

void softmax_grad(const RouterConfig& config, std::span<const float> logits, std::span<const std::int32_t> expert,
                  const float* d_weight, float* d_logits) {
  softmax(logits, d_logits);
  PerChoice direct;
  double mean = 0;
  for (std::size_t k = 0; k < expert.size(); ++k) {
    direct[k] = static_cast<double>(config.scale) * d_weight[k] * d_logits[expert[k]];
    mean += direct[k];
  }
  for (std::size_t e = 0; e < logits.size(); ++e) d_logits[e] *= -static_cast<float>(mean);
  for (std::size_t k = 0; k < expert.size(); ++k) d_logits[expert[k]] += static_cast<float>(direct[k]);
}

}  // namespace

void route_backward(const RouterConfig& config, MatrixView<const float> logits, const RoutingTable& table,
                    MatrixView<const float> d_weight, int threads, MatrixView<float> d_logits) {
  assert(logits.cols == config.experts && d_logits.cols == config.experts && d_logits.rows == logits.rows);
  assert(table.tokens() == logits.rows && table.topk() == config.topk);
  assert(d_weight.rows == logits.rows && d_weight.cols == config.topk);
  parallel_for(logits.rows, threads, kTokenGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      std::fill_n(d_logits.row(t), d_logits.cols, 0.0f);
      const auto grad = config.renormalize                ? renormalized_grad
                        : config.score == Score::kSigmoid ? sigmoid_grad
                                                          : softmax_grad;
      grad(config, logits.row_span(t), table.expert().row_span(t), d_weight.row(t), d_logits.row(t));
    }
  });
}

}  // namespace moetax
