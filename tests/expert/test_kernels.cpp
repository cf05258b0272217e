// The row kernels on every instruction set this machine has, and the ladder of sizes.
#include <gtest/gtest.h>

#include <hwy/highway.h>
#include <cmath>
#include <limits>

#include "expert/kernels.h"
#include "expert/ladder.h"
#include "expert/problem.h"

namespace moetax {
namespace {

using test::normals;
using test::OwnedRows;

TEST(Ladder, SizesAreDenseAtFirstThenEightPerDoubling) {
  std::vector<std::int64_t> sizes;
  for (int rung = 0; rung <= rung_of(kMaxTileRows); ++rung) sizes.push_back(rung_size(rung));
  for (std::int64_t n = 1; n <= 16; ++n) EXPECT_EQ(sizes[n - 1], n);
  EXPECT_EQ(std::vector(sizes.begin() + 16, sizes.begin() + 26),
            (std::vector<std::int64_t>{18, 20, 22, 24, 26, 28, 30, 32, 36, 40}));
  EXPECT_EQ(sizes.back(), 256);
  EXPECT_EQ(sizes.size(), 48u);
}

TEST(Ladder, RungIsTheSmallestThatHolds) {
  for (std::int64_t n = 1; n <= 4096; ++n) {
    const int rung = rung_of(n);
    ASSERT_GE(rung_size(rung), n);
    ASSERT_TRUE(rung == 0 || rung_size(rung - 1) < n) << n;
    ASSERT_LE(rung_size(rung) - n, n / 8) << n;
  }
}

TEST(Ladder, TilesCoverTheRowsEvenly) {
  for (const std::int64_t rows : {0, 1, 255, 256, 257, 384, 1000}) {
    const Tiles tiles(rows, 256);
    std::int64_t next = 0, least = rows, most = 0;
    for (std::int64_t t = 0; t < tiles.count(); ++t) {
      EXPECT_EQ(tiles.begin(t), next);
      next += tiles.size(t);
      least = std::min(least, tiles.size(t));
      most = std::max(most, tiles.size(t));
    }
    EXPECT_EQ(next, rows);
    EXPECT_LE(most, std::min<std::int64_t>(256, least + 1));
  }
}

class Kernels : public testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override {
    hwy::SetSupportedTargetsForTest(GetParam());
    hwy::GetChosenTarget().DeInit();
    ASSERT_STREQ(ffn_kernels_isa(), hwy::TargetName(GetParam()));
  }
  void TearDown() override {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().DeInit();
  }
};

// Lengths around every vector length.
constexpr std::int64_t kLengths[] = {1, 3, 4, 7, 8, 15, 16, 17, 31, 33, 64, 131};

TEST_P(Kernels, ConversionsRoundLikeTheScalarOnes) {
  std::vector<float> values = normals(131, 1, 100.0, DType::kFp32);
  const float special[] = {0.0f,
                           -0.0f,
                           INFINITY,
                           -INFINITY,
                           std::bit_cast<float>(0x7f800001u),  // NaN whose upper half is that of infinity
                           std::bit_cast<float>(0x7fffffffu),
                           std::bit_cast<float>(0x3f808000u),  // ties
                           std::bit_cast<float>(0x3f818000u),
                           std::numeric_limits<float>::max(),
                           std::numeric_limits<float>::denorm_min()};
  std::copy(std::begin(special), std::end(special), values.begin() + 2);
  for (const std::int64_t n : kLengths) {
    std::vector<Bf16> halves(n);
    std::vector<float> back(n);
    narrow(values.data(), nullptr, DType::kBf16, n, reinterpret_cast<std::byte*>(halves.data()));
    widen(reinterpret_cast<const std::byte*>(halves.data()), DType::kBf16, n, back.data());
    for (std::int64_t i = 0; i < n; ++i) {
      ASSERT_EQ(halves[i].bits, to_bf16(values[i]).bits) << i;
      ASSERT_EQ(std::bit_cast<std::uint32_t>(back[i]), std::bit_cast<std::uint32_t>(to_float(halves[i]))) << i;
    }
  }
}

TEST_P(Kernels, NarrowAddsTheBias) {
  const std::vector<float> values = normals(131, 1, 1, DType::kFp32), bias = normals(131, 2, 1, DType::kFp32);
  std::vector<float> out(131);
  narrow(values.data(), bias.data(), DType::kFp32, 131, reinterpret_cast<std::byte*>(out.data()));
  for (int i = 0; i < 131; ++i) ASSERT_EQ(out[i], values[i] + bias[i]);
}

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

// From far below to far above where the sigmoid saturates. fp32 in, fp32 out: a few units in the last place.
TEST_P(Kernels, ActivationsAreAccurate) {
  constexpr std::int64_t kCount = 4001;
  std::vector<float> gate_up(2 * kCount), a(kCount);
  for (std::int64_t i = 0; i < kCount; ++i) {
    gate_up[i] = static_cast<float>(i - 2000) * 0.06f;  // -120 .. 120
    gate_up[kCount + i] = 1.0f + static_cast<float>(i % 7);
  }
  const auto bytes = [](auto& v) { return reinterpret_cast<std::byte*>(v.data()); };
  activate({Activation::kSwiGlu, 0, DType::kFp32, kCount}, bytes(gate_up), bytes(a));
  for (std::int64_t i = 0; i < kCount; ++i) {
    const double g = gate_up[i], exact = g * sigmoid(g) * gate_up[kCount + i];
    ASSERT_NEAR(a[i], exact, 1e-6 * std::abs(exact) + 1e-35) << g;
  }
  activate({Activation::kClampedSwiGlu, 7.0f, DType::kFp32, kCount}, bytes(gate_up), bytes(a));
  for (std::int64_t i = 0; i < kCount; ++i) {
    const double g = std::min(gate_up[i], 7.0f), u = std::clamp(gate_up[kCount + i], -7.0f, 7.0f);
    const double exact = (u + 1) * g * sigmoid(1.702 * g);
    // The argument 1.702 g is rounded, which counts for as much as it is large.
    ASSERT_NEAR(a[i], exact, (1e-6 + 2e-7 * std::abs(g)) * std::abs(exact) + 1e-34) << g;
  }
}

TEST_P(Kernels, AnElementDoesNotDependOnItsPlace) {
  for (const DType dtype : {DType::kBf16, DType::kFp32}) {
    for (const std::int64_t n : kLengths) {
      const OwnedRows gate_up(dtype, 2, n, normals(2 * n, 5, 2.0, dtype));
      OwnedRows a(dtype, 1, n);
      activate({Activation::kSwiGlu, 0, dtype, n}, gate_up.view().data, a.view().data);
      for (std::int64_t i = 0; i < n; ++i) {
        OwnedRows one(dtype, 1, 2), alone(dtype, 1, 1);
        set_element(one.view(), 0, 0, element(gate_up.view(), 0, i));
        set_element(one.view(), 0, 1, element(gate_up.view(), 1, i));
        activate({Activation::kSwiGlu, 0, dtype, 1}, one.view().data, alone.view().data);
        ASSERT_EQ(element(alone.view(), 0, 0), element(a.view(), 0, i)) << n << " " << i;
      }
    }
  }
}

TEST_P(Kernels, SumsCoverTheWholeRow) {
  for (const DType dtype : {DType::kBf16, DType::kFp32}) {
    for (const std::int64_t n : kLengths) {
      const OwnedRows x(dtype, 1, n, normals(n, 6, 1.0, dtype));
      const std::vector<float> y = normals(n, 7, 1.0, DType::kFp32);
      std::vector<float> sum = y;
      double inner = 0, size = 0;
      for (std::int64_t i = 0; i < n; ++i) {
        inner += static_cast<double>(element(x.view(), 0, i)) * y[i];
        size += std::abs(static_cast<double>(element(x.view(), 0, i)) * y[i]);
      }
      EXPECT_NEAR(dot(x.view().data, dtype, n, y.data()), inner, static_cast<double>(n) * 0x1p-24 * size);
      add_scaled(x.view().data, dtype, n, -2.5f, sum.data());
      for (std::int64_t i = 0; i < n; ++i) ASSERT_NEAR(sum[i], y[i] - 2.5 * element(x.view(), 0, i), 2e-6);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, Kernels, testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const testing::TestParamInfo<std::int64_t>& isa) {
                           return std::string(hwy::TargetName(isa.param));
                         });

}  // namespace
}  // namespace moetax
