// The forward pass against the double-precision reference, and what must not influence a row.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <thread>

#include "expert/problem.h"

namespace moetax {
namespace {

using test::OwnedRows;
using test::Problem;
using testing::HasSubstr;

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

struct Activated {
  double a, by_g, by_u;  // value and bounds of the derivatives' magnitudes
};

Activated activated(const FfnShape& shape, double g, double u) {
  const bool clamped = shape.activation == Activation::kClampedSwiGlu;
  const double limit = clamped ? shape.clamp_limit : std::numeric_limits<double>::infinity();
  const double alpha = clamped ? 1.702 : 1.0, plus = clamped ? 1.0 : 0.0;
  g = std::min(g, limit);
  u = std::clamp(u, -limit, limit) + plus;
  const double s = sigmoid(alpha * g);
  return {u * g * s, std::abs(u * s * (1 + alpha * g * (1 - s))), std::abs(g * s)};
}

// For each element of y, how far a correct implementation may be from the exact value. To first order, with r the unit
// roundoff of the type and f that of fp32:
//   [g|u] is a sum of k products in fp32 (error k f sum|x||w|), rounded once (r |g|)
//   a     passes these on through its derivatives, has ~10 fp32 operations of its own, and is rounded once
//   y     sums |w2| times the errors of a, again a sum in fp32, rounded once
// A quarter more covers the terms of second order.
std::vector<double> error_bounds(const Problem& p) {
  const double r = test::unit_roundoff(p.dtype), f = 0x1p-24;
  const std::int64_t h = p.shape.hidden, inter = p.shape.inter;
  std::vector<double> bounds, a_error(inter), a_size(inter);
  std::int64_t row = 0;
  for (int e = 0; e < p.shape.experts; ++e) {
    const test::Weights& w = p.weights[e];
    const auto pre_activation = [&](std::int64_t j, double& error) {
      double sum = w.b13.empty() ? 0 : w.b13[j], size = std::abs(sum);
      for (std::int64_t k = 0; k < h; ++k) {
        const double product = static_cast<double>(element(p.x.view(), row, k)) * w.w13[j * h + k];
        sum += product;
        size += std::abs(product);
      }
      error = r * std::abs(sum) + static_cast<double>(h) * f * size;
      return sum;
    };
    for (std::int64_t end = row + p.count[e]; row < end; ++row) {
      for (std::int64_t j = 0; j < inter; ++j) {
        double g_error, u_error;
        const double g = pre_activation(j, g_error), u = pre_activation(inter + j, u_error);
        const Activated act = activated(p.shape, g, u);
        a_size[j] = std::abs(act.a);
        a_error[j] = act.by_g * g_error + act.by_u * u_error + (r + 10 * f) * std::abs(act.a);
      }
      for (std::int64_t i = 0; i < h; ++i) {
        double value = w.b2.empty() ? 0 : std::abs(w.b2[i]), error = 0;
        for (std::int64_t j = 0; j < inter; ++j) {
          const double weight = std::abs(w.w2[i * inter + j]);
          value += weight * a_size[j];
          error += weight * a_error[j];
        }
        bounds.push_back(1.25 * (error + (r + static_cast<double>(inter) * f) * value));
      }
    }
  }
  return bounds;
}

std::vector<double> reference(const Problem& p) {
  std::vector<double> y(p.rows * p.shape.hidden);
  feed_forward_reference(p.shape, p.views(), p.in(), {y.data(), p.rows, p.shape.hidden, p.shape.hidden});
  return y;
}

void expect_within_bounds(const Problem& p, const OwnedRows& y) {
  const std::vector<double> exact = reference(p), bounds = error_bounds(p);
  for (std::int64_t i = 0; i < p.rows * p.shape.hidden; ++i) {
    const double got = element(y.view(), i / p.shape.hidden, i % p.shape.hidden);
    ASSERT_NEAR(got, exact[i], bounds[i]) << "row " << i / p.shape.hidden << " column " << i % p.shape.hidden;
  }
}

class Forward : public testing::TestWithParam<std::tuple<DType, Activation, bool, int>> {
 protected:
  FfnShape shape(std::int64_t hidden, std::int64_t inter) const {
    const auto& [dtype, activation, bias, threads] = GetParam();
    // A low limit, so that clamping happens.
    return {.hidden = hidden, .inter = inter, .activation = activation, .clamp_limit = 1.0f, .bias = bias};
  }
  DType dtype() const { return std::get<0>(GetParam()); }
  int threads() const { return std::get<3>(GetParam()); }
};

TEST_P(Forward, MatchesTheReferenceOnRandomShapes) {
  const RandomStream random(11, 0);
  for (std::uint64_t round = 0; round < 3; ++round) {
    const auto pick = [&](std::uint64_t i, std::int64_t most) {
      return static_cast<std::int64_t>(random.bits(16 * round + i) % most) + 1;
    };
    std::vector<std::int32_t> count(pick(0, 5));
    for (std::size_t e = 0; e < count.size(); ++e) count[e] = static_cast<std::int32_t>(pick(4 + e, 40)) - 1;
    const Problem p(shape(pick(1, 150), pick(2, 150)), dtype(), count);
    FeedForward ffn = p.make(threads());
    SCOPED_TRACE(testing::Message() << "hidden " << p.shape.hidden << " inter " << p.shape.inter);
    expect_within_bounds(p, p.forward(ffn));
  }
}

TEST_P(Forward, MatchesTheReferenceOnModelWidths) {
  for (const auto& [hidden, inter] : {std::pair{2880, 60}, {60, 704}, {61, 2880}}) {
    const Problem p(shape(hidden, inter), dtype(), {3, 0, 17});
    FeedForward ffn = p.make(threads());
    expect_within_bounds(p, p.forward(ffn));
  }
}

TEST_P(Forward, MatchesTheReferenceOnManyRows) {
  const Problem p(shape(36, 20), dtype(), {1000, 1, 257});
  FeedForward ffn = p.make(threads());
  expect_within_bounds(p, p.forward(ffn));
}

INSTANTIATE_TEST_SUITE_P(All, Forward,
                         testing::Combine(testing::Values(DType::kBf16, DType::kFp32),
                                          testing::Values(Activation::kSwiGlu, Activation::kClampedSwiGlu),
                                          testing::Bool(), testing::Values(1, 2)));

class RowIndependence : public testing::TestWithParam<DType> {};

// Widths of the presets that are quick to multiply, and odd ones.
TEST_P(RowIndependence, BitsOfARowDoNotDependOnBatchThreadsOrKeeping) {
  for (const auto& [hidden, inter] : {std::pair{2048, 704}, {2880, 60}, {61, 131}}) {
    constexpr std::int32_t kRows = 300;
    const Problem all({.hidden = hidden, .inter = inter}, GetParam(), {kRows});
    FeedForward one = all.make(1), two = all.make(2);
    const OwnedRows expected = all.forward(one);
    FfnSaved saved;
    EXPECT_EQ(all.forward(two, &saved).bytes(), expected.bytes());
    // Every size of the ladder, at changing places.
    for (std::int32_t n = 1; n <= 256; n += n < 16 ? 1 : n < 64 ? 5 : 29) {
      const std::int64_t first = (n * 37) % (kRows - n + 1);
      OwnedRows y(GetParam(), n, hidden);
      FeedForward& ffn = n % 2 ? one : two;
      ffn.forward({all.in().rows.slice(first, n), {&n, 1}}, y.view(), nullptr);
      for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(y.row(i), expected.row(first + i)) << n << " rows, row " << i;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(All, RowIndependence, testing::Values(DType::kBf16, DType::kFp32));

TEST(FeedForward, RowsOfOtherExpertsAndBeyondStayUntouched) {
  const Problem p({.hidden = 40, .inter = 24}, DType::kBf16, {19, 33, 0, 1});
  FeedForward ffn = p.make(2);
  OwnedRows guarded(DType::kBf16, p.rows + 64, 40);
  std::fill_n(guarded.view().data, guarded.view().bytes(), std::byte{0x5a});
  FfnSaved saved;
  ffn.forward(p.in(), guarded.view().slice(32, p.rows), &saved);
  const OwnedRows y = p.forward(ffn);
  for (std::int64_t i = 0; i < guarded.view().rows; ++i) {
    const bool ours = i >= 32 && i < 32 + p.rows;
    EXPECT_EQ(guarded.row(i), ours ? y.row(i - 32) : std::vector(80, std::byte{0x5a})) << i;
  }
}

TEST(FeedForward, NaNStaysInItsRow) {
  Problem p({.hidden = 40, .inter = 24}, DType::kBf16, {19});
  FeedForward ffn = p.make(1);
  const OwnedRows clean = p.forward(ffn);
  set_element(p.x.view(), 7, 3, std::numeric_limits<float>::quiet_NaN());
  const OwnedRows y = p.forward(ffn);
  for (std::int64_t i = 0; i < 19; ++i) {
    if (i == 7) {
      EXPECT_TRUE(std::isnan(element(y.view(), i, 0)));
    } else {
      EXPECT_EQ(y.row(i), clean.row(i));
    }
  }
}

// As ranks that are threads of one process do.
TEST(FeedForward, EachThreadMayUseItsOwn) {
  const Problem p({.hidden = 61, .inter = 35}, DType::kBf16, {40, 3});
  FeedForward alone = p.make(1);
  const OwnedRows expected = p.forward(alone);
  test::Gradients gradients(p);
  gradients.run(p, alone, nullptr);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank) {
    threads.emplace_back([&] {
      FeedForward ffn = p.make(1);
      FfnSaved saved;
      EXPECT_EQ(p.forward(ffn, &saved).bytes(), expected.bytes());
      test::Gradients here(p);
      here.run(p, ffn, &saved);
      EXPECT_TRUE(here == gradients);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(FeedForward, MayBeCalledFromInsideACallersTeam) {
  const Problem p({.hidden = 61, .inter = 35}, DType::kBf16, {40, 3});
  FeedForward ffn = p.make(2);
  const OwnedRows expected = p.forward(ffn);
  bool equal = false;
#pragma omp parallel num_threads(2)
#pragma omp single
  equal = p.forward(ffn).bytes() == expected.bytes();
  EXPECT_TRUE(equal);
}

TEST(FeedForward, FilledRowByRowEqualsSet) {
  for (const DType dtype : {DType::kBf16, DType::kFp32}) {
    const Problem p({.hidden = 61, .inter = 35, .bias = true}, dtype, {4, 3});
    FeedForward set = p.make(1), filled = p.make(2);
    for (int e = 0; e < 2; ++e) {
      const test::Weights& w = p.weights[e];
      const std::vector<float>* matrices[] = {&w.w13, &w.w2, &w.b13, &w.b2};
      EXPECT_TRUE(filled.fill_weights(e, [&](int matrix, std::int64_t row, std::span<float> out) {
        std::copy_n(matrices[matrix]->begin() + row * static_cast<std::int64_t>(out.size()), out.size(), out.begin());
      }));
    }
    EXPECT_EQ(p.forward(filled).bytes(), p.forward(set).bytes());
  }
}

TEST(FeedForward, NoExpertsAndNoRows) {
  Result<FeedForward> none = FeedForward::create({.hidden = 8, .inter = 8}, DType::kBf16, 1);
  ASSERT_TRUE(none);
  none->forward({{nullptr, DType::kBf16, 0, 8}, {}}, {nullptr, DType::kBf16, 0, 8}, nullptr);
  EXPECT_EQ(none->weight_bytes(), 0u);
  const Problem p({.hidden = 8, .inter = 8}, DType::kFp32, {0, 0, 0});
  FeedForward ffn = p.make(1);
  EXPECT_EQ(p.forward(ffn).view().rows, 0);
}

TEST(FeedForward, SaysWhatIsWrong) {
  const auto message = [](const FfnShape& shape, int threads) {
    const Result<FeedForward> made = FeedForward::create(shape, DType::kBf16, threads);
    return made ? std::string("made") : made.error().message;
  };
  EXPECT_THAT(message({.hidden = 0, .inter = 8}, 1), HasSubstr("hidden 0"));
  EXPECT_THAT(message({.hidden = 8, .inter = -1}, 1), HasSubstr("inter -1"));
  EXPECT_THAT(message({.hidden = 8, .inter = 8, .experts = -1}, 1), HasSubstr("-1"));
  EXPECT_THAT(message({.hidden = 8, .inter = 8}, 0), HasSubstr("0 threads"));
  EXPECT_THAT(message({.hidden = 7168, .inter = 2048, .experts = 100'000'000}, 1), HasSubstr("do not fit"));

  const Problem p({.hidden = 8, .inter = 4}, DType::kFp32, {1});
  FeedForward ffn = p.make(1);
  const std::vector<float> w13(64), w2(32), wrong(5);
  EXPECT_TRUE(ffn.set_weights(0, {w13, w2, {}, {}}));
  EXPECT_THAT(ffn.set_weights(1, {w13, w2, {}, {}}).error().message, HasSubstr("expert 1"));
  EXPECT_THAT(ffn.set_weights(0, {wrong, w2, {}, {}}).error().message, HasSubstr("w13 holds 5 values, expected 64"));
  EXPECT_THAT(ffn.set_weights(0, {w13, wrong, {}, {}}).error().message, HasSubstr("w2 holds 5"));
  EXPECT_THAT(ffn.set_weights(0, {w13, w2, wrong, {}}).error().message, HasSubstr("b13 holds 5 values, expected 0"));
}

TEST(FeedForward, CountsItsWork) {
  const Problem p({.hidden = 64, .inter = 32}, DType::kFp32, {1});
  FeedForward ffn = p.make(1);
  EXPECT_EQ(ffn.flops_per_row(), 6.0 * 64 * 32);
  EXPECT_GE(ffn.weight_bytes(), 3u * 64 * 32 * 4);
  EXPECT_THAT(gemm_description(), HasSubstr("oneDNN"));
}

}  // namespace
}  // namespace moetax
