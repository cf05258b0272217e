// The router's product, forward and backward.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "expert/problem.h"

namespace moetax {
namespace {

using test::normals;
using test::OwnedRows;

struct LinearProblem {
  std::int64_t rows, in, out;
  DType dtype;
  std::vector<float> w = normals(out * in, 1, 1 / std::sqrt(in), dtype);
  OwnedRows x{dtype, rows, in, normals(rows* in, 2, 1.0, dtype)};
  std::vector<float> d_y = normals(rows * out, 3, 1.0, DType::kFp32);

  Linear make(int threads) const {
    Result<Linear> made = Linear::create(in, out, dtype, threads);
    EXPECT_TRUE(made);
    EXPECT_TRUE(made->set_weights(w));
    return std::move(*made);
  }
  MatrixView<const float> upstream() const { return {d_y.data(), rows, out, out}; }
};

class LinearTest : public testing::TestWithParam<std::tuple<DType, int>> {
 protected:
  DType dtype() const { return std::get<0>(GetParam()); }
  int threads() const { return std::get<1>(GetParam()); }
};

// Inputs are exact in their type and sums are fp32, whatever the type: n terms err by at most n 2^-24 of their sizes.
TEST_P(LinearTest, MatchesDouble) {
  for (const auto& [rows, in, out] : {std::tuple{19, 300, 64}, {1, 61, 7}, {300, 128, 256}, {700, 33, 5}}) {
    const LinearProblem p{rows, in, out, dtype()};
    Linear linear = p.make(threads());
    constexpr std::int64_t kGap = 3;  // rows of y lie apart
    std::vector<float> y(p.rows * (p.out + kGap), 99.0f);
    linear.forward(p.x.view(), {y.data(), p.rows, p.out, p.out + kGap});
    for (std::int64_t i = 0; i < p.rows; ++i) {
      for (std::int64_t j = 0; j < p.out; ++j) {
        double sum = 0, size = 0;
        for (std::int64_t k = 0; k < p.in; ++k) {
          const double product = static_cast<double>(element(p.x.view(), i, k)) * p.w[j * p.in + k];
          sum += product;
          size += std::abs(product);
        }
        ASSERT_NEAR(y[i * (p.out + kGap) + j], sum, static_cast<double>(p.in) * 0x1p-24 * size);
      }
      ASSERT_EQ(y[i * (p.out + kGap) + p.out], 99.0f);
    }
  }
}

TEST_P(LinearTest, GradientsMatchDouble) {
  for (const auto& [rows, in, out] : {std::tuple{19, 300, 64}, {1, 61, 7}, {600, 40, 9}}) {
    const LinearProblem p{rows, in, out, dtype()};
    Linear linear = p.make(threads());
    std::vector<float> d_x(p.rows * p.in), d_w(p.out * p.in, 5.0f), added(p.out * p.in, 5.0f);
    linear.backward(p.x.view(), p.upstream(), {d_x.data(), p.rows, p.in, p.in}, d_w, false);
    linear.backward(p.x.view(), p.upstream(), {d_x.data(), p.rows, p.in, p.in}, added, true);
    for (std::int64_t i = 0; i < p.rows * p.in; ++i) {
      double sum = 0, size = 0;
      for (std::int64_t j = 0; j < p.out; ++j) {
        const double product = static_cast<double>(p.d_y[i / p.in * p.out + j]) * p.w[j * p.in + i % p.in];
        sum += product;
        size += std::abs(product);
      }
      ASSERT_NEAR(d_x[i], sum, static_cast<double>(p.out) * 0x1p-24 * size);
    }
    for (std::int64_t i = 0; i < p.out * p.in; ++i) {
      double sum = 0, size = 0;
      for (std::int64_t r = 0; r < p.rows; ++r) {
        const double product = static_cast<double>(p.d_y[r * p.out + i / p.in]) * element(p.x.view(), r, i % p.in);
        sum += product;
        size += std::abs(product);
      }
      const double bound = static_cast<double>(p.rows + 2) * 0x1p-24 * (size + 5);
      ASSERT_NEAR(d_w[i], sum, bound);
      ASSERT_NEAR(added[i], sum + 5, bound);
    }
  }
}

TEST_P(LinearTest, BitsOfARowDoNotDependOnBatchOrThreads) {
  for (const auto& [in, out] : {std::pair{2048L, 64L}, {2880L, 32L}, {61L, 7L}}) {
    const LinearProblem p{300, in, out, dtype()};
    Linear linear = p.make(threads()), other = p.make(3 - threads());
    std::vector<float> expected(300 * out);
    linear.forward(p.x.view(), {expected.data(), 300, out, out});
    for (const std::int64_t rows : {1, 2, 3, 4, 7, 13, 16, 17, 64, 100, 256, 299}) {
      const std::int64_t first = (rows * 37) % (301 - rows);
      std::vector<float> y(rows * out);
      other.forward(p.x.view().slice(first, rows), {y.data(), rows, out, out});
      ASSERT_TRUE(std::equal(y.begin(), y.end(), expected.begin() + first * out)) << rows;
    }
  }
}

TEST_P(LinearTest, NoRows) {
  Linear linear = LinearProblem{0, 20, 4, dtype()}.make(threads());
  std::vector<float> d_w(80, 3.0f);
  linear.forward({nullptr, dtype(), 0, 20}, {nullptr, 0, 4, 4});
  linear.backward({nullptr, dtype(), 0, 20}, {nullptr, 0, 4, 4}, {nullptr, 0, 20, 20}, d_w, true);
  EXPECT_EQ(d_w, std::vector(80, 3.0f));
  linear.backward({nullptr, dtype(), 0, 20}, {nullptr, 0, 4, 4}, {nullptr, 0, 20, 20}, d_w, false);
  EXPECT_EQ(d_w, std::vector(80, 0.0f));
}

INSTANTIATE_TEST_SUITE_P(All, LinearTest,
                         testing::Combine(testing::Values(DType::kBf16, DType::kFp32), testing::Values(1, 2)));

TEST(Linear, SaysWhatIsWrong) {
  EXPECT_THAT(Linear::create(0, 4, DType::kBf16, 1).error().message, testing::HasSubstr("0 -> 4"));
  Linear linear = LinearProblem{1, 20, 4, DType::kFp32}.make(1);
  const std::vector<float> wrong(7);
  EXPECT_THAT(linear.set_weights(wrong).error().message, testing::HasSubstr("7 values, expected 4 x 20"));
}

}  // namespace
}  // namespace moetax
