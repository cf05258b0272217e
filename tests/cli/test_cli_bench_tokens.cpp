// What a bench puts between its layers, and how it compares outputs.
#include "cli/bench_tokens.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "moetax/base/random.h"

namespace moetax::cli {
namespace {

constexpr std::int64_t kTokens = 5, kHidden = 24;

struct Matrix {
  explicit Matrix(std::uint64_t seed = 0) : values(kTokens * kHidden) {
    const RandomStream random(seed, 0);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = seed == 0 ? 0 : 3 * random.normal(i);
  }
  Rows rows() { return {reinterpret_cast<std::byte*>(values.data()), DType::kFp32, kTokens, kHidden}; }
  MatrixView<const float> view() const { return {values.data(), kTokens, kHidden}; }
  std::vector<float> values;
};

TEST(AddAndNormalise, RowsHaveUnitRootMeanSquare) {
  Matrix x(1), y(2), out;
  std::vector<float> scale(kTokens);
  add_and_normalise(x.rows(), y.rows(), 2, out.rows(), scale);
  for (std::int64_t t = 0; t < kTokens; ++t) {
    double squares = 0;
    for (std::int64_t j = 0; j < kHidden; ++j) {
      const auto i = static_cast<std::size_t>(t * kHidden + j);
      squares += double{out.values[i]} * out.values[i];
      EXPECT_NEAR(out.values[i], (x.values[i] + y.values[i]) * scale[static_cast<std::size_t>(t)], 1e-6);
    }
    EXPECT_NEAR(squares / kHidden, 1, 1e-5);
  }
}

TEST(AddAndNormalise, ZerosStayZerosAndNoTokensAreNone) {
  Matrix x, y, out(1);
  std::vector<float> scale(kTokens);
  add_and_normalise(x.rows(), y.rows(), 1, out.rows(), scale);
  for (const float value : out.values) EXPECT_EQ(value, 0);
  add_and_normalise({nullptr, DType::kFp32, 0, kHidden}, {nullptr, DType::kFp32, 0, kHidden}, 1,
                    {nullptr, DType::kFp32, 0, kHidden}, {});
}

// d_s against central differences of L = sum(out * d) with respect to s, in double precision.
TEST(AddAndNormalise, GradientAgreesWithDifferences) {
  Matrix s(1), zero, out, d_out(3), d_more(4), d_s;
  std::vector<float> scale(kTokens);
  add_and_normalise(s.rows(), zero.rows(), 1, out.rows(), scale);
  const auto loss = [&](std::int64_t t, std::int64_t at, double step) {
    double squares = 0, product = 0;
    for (std::int64_t j = 0; j < kHidden; ++j) {
      const auto i = static_cast<std::size_t>(t * kHidden + j);
      const double value = s.values[i] + (j == at ? step : 0);
      squares += value * value;
      product += value * (double{d_out.values[i]} + d_more.values[i]);
    }
    return product / std::sqrt(squares / kHidden + 1e-6);
  };
  Matrix in_place = d_more;
  add_and_normalise_backward(out.rows(), scale, d_out.view(), d_more.rows(), 2, d_s.rows());
  add_and_normalise_backward(out.rows(), scale, d_out.view(), in_place.rows(), 2, in_place.rows());
  EXPECT_EQ(in_place.values, d_s.values);
  for (std::int64_t t = 0; t < kTokens; ++t) {
    for (std::int64_t j = 0; j < kHidden; ++j) {
      const double expected = (loss(t, j, 1e-5) - loss(t, j, -1e-5)) / 2e-5;
      EXPECT_NEAR(d_s.values[static_cast<std::size_t>(t * kHidden + j)], expected, 1e-4);
    }
  }
}

TEST(HashRows, PartsAddUpAndPlacesMatter) {
  Matrix m(1);
  const std::uint64_t whole = hash_rows(7, m.rows());
  EXPECT_EQ(hash_rows(7, m.rows().slice(0, 2)) + hash_rows(9, m.rows().slice(2, 3)), whole);
  EXPECT_NE(hash_rows(8, m.rows()), whole);
}

}  // namespace
}  // namespace moetax::cli
