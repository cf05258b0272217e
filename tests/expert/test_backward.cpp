// Gradients against a double-precision backward, which is itself held to finite differences of the reference.
#include <gtest/gtest.h>

#include <algorithm>

#include "expert/problem.h"

namespace moetax {
namespace {

using test::Gradients;
using test::Problem;

struct ExactGradients {
  std::vector<double> d_x, d_gate, d_w13, d_w2, d_b13, d_b2;
};

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

struct Derivatives {
  double a, by_g, by_u;
};

// Whether a value is cut is decided on what the type holds of it: the derivative jumps there.
Derivatives derivatives(const FfnShape& shape, DType dtype, double g, double u) {
  if (shape.activation == Activation::kSwiGlu) {
    const double s = sigmoid(g);
    return {g * s * u, u * s * (1 + g * (1 - s)), g * s};
  }
  const double limit = shape.clamp_limit;
  const bool g_cut = test::rounded(static_cast<float>(g), dtype) > limit;
  const bool u_cut = std::abs(test::rounded(static_cast<float>(u), dtype)) > limit;
  g = std::min(g, limit);
  u = std::clamp(u, -limit, limit);
  const double s = sigmoid(1.702 * g);
  return {(u + 1) * g * s, g_cut ? 0 : (u + 1) * s * (1 + 1.702 * g * (1 - s)), u_cut ? 0 : g * s};
}

// The gradient of sum_i w_i <d_y_i, y_i>.
ExactGradients exact_gradients(const Problem& p) {
  const std::int64_t h = p.shape.hidden, inter = p.shape.inter;
  const auto experts = static_cast<std::int64_t>(p.count.size());
  ExactGradients grad{std::vector<double>(p.rows * h),
                      std::vector<double>(p.rows),
                      std::vector<double>(experts * 2 * inter * h),
                      std::vector<double>(experts * h * inter),
                      std::vector<double>(experts * 2 * inter),
                      std::vector<double>(experts * h)};
  std::int64_t row = 0;
  for (std::int64_t e = 0; e < experts; ++e) {
    const test::Weights& weights = p.weights[e];
    for (std::int64_t end = row + p.count[e]; row < end; ++row) {
      const auto x = [&](std::int64_t k) { return static_cast<double>(element(p.x.view(), row, k)); };
      const auto d_y = [&](std::int64_t k) { return static_cast<double>(element(p.d_y.view(), row, k)); };
      const auto pre = [&](std::int64_t j) {
        double sum = p.shape.bias ? weights.b13[j] : 0;
        for (std::int64_t k = 0; k < h; ++k) sum += weights.w13[j * h + k] * x(k);
        return sum;
      };
      const double w = p.w[row];
      for (std::int64_t i = 0; p.shape.bias && i < h; ++i) {
        grad.d_b2[e * h + i] += w * d_y(i);
        grad.d_gate[row] += d_y(i) * weights.b2[i];
      }
      for (std::int64_t j = 0; j < inter; ++j) {
        const Derivatives by = derivatives(p.shape, p.dtype, pre(j), pre(inter + j));
        double d_a = 0;
        for (std::int64_t i = 0; i < h; ++i) {
          d_a += d_y(i) * weights.w2[i * inter + j];
          grad.d_w2[(e * h + i) * inter + j] += w * d_y(i) * by.a;
        }
        grad.d_gate[row] += d_a * by.a;
        const auto pass_on = [&](std::int64_t z, double d_z) {
          grad.d_b13[e * 2 * inter + z] += d_z;
          for (std::int64_t k = 0; k < h; ++k) {
            grad.d_w13[(e * 2 * inter + z) * h + k] += d_z * x(k);
            grad.d_x[row * h + k] += d_z * weights.w13[z * h + k];
          }
        };
        pass_on(j, w * d_a * by.by_g);
        pass_on(inter + j, w * d_a * by.by_u);
      }
    }
  }
  return grad;
}

double loss(const Problem& p) {
  std::vector<double> y(p.rows * p.shape.hidden);
  feed_forward_reference(p.shape, p.views(), p.in(), {y.data(), p.rows, p.shape.hidden, p.shape.hidden});
  double sum = 0;
  for (std::int64_t i = 0; i < p.rows * p.shape.hidden; ++i) {
    sum += static_cast<double>(p.w[i / p.shape.hidden]) *
           element(p.d_y.view(), i / p.shape.hidden, i % p.shape.hidden) * y[i];
  }
  return sum;
}

// The slope of the loss in one fp32 parameter. The step is one that fp32 represents; the parameter is restored.
double slope(const Problem& p, float& parameter) {
  const float before = parameter, above = before + 0x1p-8f, below = before - 0x1p-8f;
  parameter = above;
  const double up = loss(p);
  parameter = below;
  const double down = loss(p);
  parameter = before;
  return (up - down) / (static_cast<double>(above) - below);
}

// Central differences err by step^2 / 6 times the third derivative, here about 1e-5 of the slope's scale.
constexpr double kSlopeTolerance = 2e-3;

TEST(ExactGradients, AgreeWithFiniteDifferences) {
  for (const Activation activation : {Activation::kSwiGlu, Activation::kClampedSwiGlu}) {
    const FfnShape shape{.hidden = 5, .inter = 4, .activation = activation, .clamp_limit = 1.5f, .bias = true};
    Problem p(shape, DType::kFp32, {3, 0, 2});
    const ExactGradients grad = exact_gradients(p);
    const auto check = [&](std::vector<float>& parameters, std::span<const double> expected) {
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        EXPECT_NEAR(slope(p, parameters[i]), expected[i], kSlopeTolerance) << i;
      }
    };
    for (std::size_t e = 0; e < p.weights.size(); ++e) {
      check(p.weights[e].w13, std::span(grad.d_w13).subspan(e * 40, 40));
      check(p.weights[e].w2, std::span(grad.d_w2).subspan(e * 20, 20));
      check(p.weights[e].b13, std::span(grad.d_b13).subspan(e * 8, 8));
      check(p.weights[e].b2, std::span(grad.d_b2).subspan(e * 5, 5));
    }
    check(p.w, grad.d_gate);
    auto* x = reinterpret_cast<float*>(p.x.view().data);
    for (std::int64_t i = 0; i < p.rows * 5; ++i) EXPECT_NEAR(slope(p, x[i]), grad.d_x[i], kSlopeTolerance) << i;
  }
}

// |got - exact| against |exact|, both as lengths of the whole vector.
template <class Got>
void expect_close(const char* name, std::int64_t count, Got got, const std::vector<double>& exact, double tolerance) {
  ASSERT_EQ(static_cast<std::size_t>(count), exact.size()) << name;
  double error = 0, size = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    error += (got(i) - exact[i]) * (got(i) - exact[i]);
    size += exact[i] * exact[i];
  }
  EXPECT_LE(std::sqrt(error), tolerance * std::sqrt(size)) << name;
}

// Each gradient passes through at most four roundings to the type (of g and u, of a or d[g|u], and of the result), each
// a relative error of at most r in every element; the activation's derivatives change by at most about twice the
// relative error of g and u. So 8 r bounds the relative error of the whole. Sums in fp32 over n terms add at most n
// 2^-24.
void expect_gradients(const Problem& p, const Gradients& got) {
  const ExactGradients exact = exact_gradients(p);
  const std::int64_t longest = std::max({p.shape.hidden, 2 * p.shape.inter, p.rows});
  const double tolerance = 8 * test::unit_roundoff(p.dtype) + static_cast<double>(longest) * 0x1p-24;
  const auto check = [&](const char* name, const std::vector<float>& values, const std::vector<double>& expected) {
    expect_close(
        name, static_cast<std::int64_t>(values.size()), [&](std::int64_t i) { return values[i]; }, expected, tolerance);
  };
  const std::int64_t h = p.shape.hidden;
  expect_close(
      "d_x", p.rows * h, [&](std::int64_t i) { return element(got.d_x.view(), i / h, i % h); }, exact.d_x, tolerance);
  check("d_gate", got.d_gate, exact.d_gate);
  check("d_w13", got.d_w13, exact.d_w13);
  check("d_w2", got.d_w2, exact.d_w2);
  if (!p.shape.bias) return;
  check("d_b13", got.d_b13, exact.d_b13);
  check("d_b2", got.d_b2, exact.d_b2);
}

class Backward : public testing::TestWithParam<std::tuple<DType, Activation, bool, int>> {};

TEST_P(Backward, MatchesTheExactGradients) {
  const auto& [dtype, activation, bias, threads] = GetParam();
  for (const auto& [hidden, inter] : {std::pair{64, 32}, {61, 35}, {130, 7}}) {
    const FfnShape shape{.hidden = hidden, .inter = inter, .activation = activation, .clamp_limit = 1.0f, .bias = bias};
    const Problem p(shape, dtype, {5, 0, 33, 1, 600});
    FeedForward ffn = p.make(threads);
    FfnSaved saved;
    p.forward(ffn, &saved);
    Gradients got(p, 123.0f);  // must be overwritten
    got.run(p, ffn, &saved);
    expect_gradients(p, got);
  }
}

TEST_P(Backward, KeptAndRecomputedAndThreadsGiveTheSameBits) {
  const auto& [dtype, activation, bias, threads] = GetParam();
  const FfnShape shape{.hidden = 192, .inter = 136, .activation = activation, .clamp_limit = 1.0f, .bias = bias};
  const Problem p(shape, dtype, {100, 0, 1, 1100});
  FeedForward ffn = p.make(threads), other = p.make(3 - threads);
  FfnSaved saved;
  p.forward(ffn, &saved);
  EXPECT_GE(saved.bytes(), static_cast<std::size_t>(p.rows) * 2 * 136 * size_of(dtype));
  Gradients kept(p), recomputed(p), elsewhere(p);
  kept.run(p, ffn, &saved);
  recomputed.run(p, ffn, nullptr);
  elsewhere.run(p, other, nullptr);
  EXPECT_TRUE(kept == recomputed);
  EXPECT_TRUE(kept == elsewhere);
}

TEST_P(Backward, AccumulatesOnRequest) {
  const auto& [dtype, activation, bias, threads] = GetParam();
  const FfnShape shape{.hidden = 48, .inter = 40, .activation = activation, .bias = bias};
  const Problem p(shape, dtype, {20, 0, 3});
  FeedForward ffn = p.make(threads);
  Gradients overwritten(p, 55.0f), once(p), twice(p);
  overwritten.run(p, ffn, nullptr);
  once.run(p, ffn, nullptr, true);
  EXPECT_TRUE(overwritten == once);
  twice.run(p, ffn, nullptr, true);
  twice.run(p, ffn, nullptr, true);
  for (std::size_t i = 0; i < once.d_w13.size(); ++i) ASSERT_EQ(twice.d_w13[i], 2 * once.d_w13[i]);
  for (std::size_t i = 0; i < once.d_w2.size(); ++i) ASSERT_EQ(twice.d_w2[i], 2 * once.d_w2[i]);
  for (std::size_t i = 0; i < once.d_b2.size(); ++i) ASSERT_NEAR(twice.d_b2[i], 2 * once.d_b2[i], 1e-4);
  // The expert without rows: zeros when overwritten, nothing added when accumulated.
  constexpr std::int64_t kSize = 80 * 48;
  Gradients onto(p, 55.0f);
  onto.run(p, ffn, nullptr, true);
  const auto all = [](const std::vector<float>& values, float value) {
    return std::all_of(values.begin() + kSize, values.begin() + 2 * kSize, [&](float v) { return v == value; });
  };
  EXPECT_TRUE(all(overwritten.d_w13, 0.0f));
  EXPECT_TRUE(all(onto.d_w13, 55.0f));
}

INSTANTIATE_TEST_SUITE_P(All, Backward,
                         testing::Combine(testing::Values(DType::kBf16, DType::kFp32),
                                          testing::Values(Activation::kSwiGlu, Activation::kClampedSwiGlu),
                                          testing::Bool(), testing::Values(1, 2)));

TEST(FeedForwardBackward, GradientsOfAnExpertDoNotDependOnTheOthers) {
  const FfnShape shape{.hidden = 160, .inter = 72};
  const Problem both(shape, DType::kBf16, {37, 90});
  FeedForward ffn = both.make(2);
  Gradients all(both);
  all.run(both, ffn, nullptr);
  const Problem first(shape, DType::kBf16, {37});  // the same first expert and rows
  FeedForward alone = first.make(1);
  Gradients part(first);
  part.run(first, alone, nullptr);
  EXPECT_TRUE(std::equal(part.d_w13.begin(), part.d_w13.end(), all.d_w13.begin()));
  EXPECT_TRUE(std::equal(part.d_w2.begin(), part.d_w2.end(), all.d_w2.begin()));
  for (std::int64_t i = 0; i < 37; ++i) ASSERT_EQ(part.d_x.row(i), all.d_x.row(i));
}

TEST(FeedForwardBackward, WithoutGateWeightsTheyAreOne) {
  Problem p({.hidden = 40, .inter = 24}, DType::kBf16, {19});
  std::fill(p.w.begin(), p.w.end(), 1.0f);
  FeedForward ffn = p.make(1);
  Gradients with(p), without(p);
  with.run(p, ffn, nullptr);
  ffn.backward(p.in(), nullptr, p.d_y.view(), {}, without.d_x.view(), {}, {without.d_w13, without.d_w2, {}, {}}, false);
  EXPECT_EQ(with.d_x.bytes(), without.d_x.bytes());
  EXPECT_EQ(with.d_w13, without.d_w13);
  EXPECT_EQ(with.d_w2, without.d_w2);
}

TEST(FeedForwardBackward, GateGradientIsTheInnerProductWithTheOutput) {
  const Problem p({.hidden = 40, .inter = 24, .bias = true}, DType::kFp32, {19});
  FeedForward ffn = p.make(1);
  const test::OwnedRows y = p.forward(ffn);
  Gradients got(p);
  got.run(p, ffn, nullptr);
  for (std::int64_t i = 0; i < p.rows; ++i) {
    double inner = 0, size = 0;
    for (std::int64_t j = 0; j < 40; ++j) {
      const double product = static_cast<double>(element(p.d_y.view(), i, j)) * element(y.view(), i, j);
      inner += product;
      size += std::abs(product);
    }
    EXPECT_NEAR(got.d_gate[i], inner, 1e-5 * (size + 1));
  }
}

}  // namespace
}  // namespace moetax
