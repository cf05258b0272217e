#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "moetax/base/dtype.h"
#include "moetax/base/random.h"

namespace moetax {
namespace {

// The nearest bf16 by definition, in double: of the two neighbours the closer one, on a tie the one with an even last
// bit. The neighbour above the largest finite value is 2^128, whose encoding is infinity.
Bf16 nearest_bf16(float value) {
  const auto below_bits = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);  // towards zero
  const auto above_bits = static_cast<std::uint16_t>(below_bits + 1);
  auto magnitude = [](std::uint16_t bits) {
    const double finite = std::abs(double{to_float(Bf16{bits})});
    return std::isinf(finite) ? 0x1p128 : finite;
  };
  const double exact = std::abs(double{value});
  const double to_below = exact - magnitude(below_bits), to_above = magnitude(above_bits) - exact;
  if (to_below != to_above) return Bf16{to_below < to_above ? below_bits : above_bits};
  return Bf16{below_bits % 2 == 0 ? below_bits : above_bits};
}

TEST(Bf16, EveryValueComesBackUnchanged) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const Bf16 value{static_cast<std::uint16_t>(bits)};
    const float wide = to_float(value);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(to_float(to_bf16(wide)))) << std::hex << bits;
    } else {
      ASSERT_EQ(to_bf16(wide).bits, value.bits) << std::hex << bits;
    }
  }
}

// Around every bf16 value: just above it, just below and at the middle to the next one, and just below the next one.
TEST(Bf16, RoundsToNearestEvenAroundEveryValue) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    for (const std::uint32_t tail : {0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      const float value = std::bit_cast<float>((bits << 16) | tail);
      if (!std::isfinite(value)) continue;
      ASSERT_EQ(to_bf16(value).bits, nearest_bf16(value).bits) << std::hexfloat << value;
    }
  }
}

TEST(Bf16, RoundsToNearestEvenOnRandomBits) {
  const RandomStream random(1, 2);
  for (std::uint64_t i = 0; i < 1'000'000; ++i) {
    const float value = std::bit_cast<float>(static_cast<std::uint32_t>(random.bits(i)));
    if (!std::isfinite(value)) continue;
    ASSERT_EQ(to_bf16(value).bits, nearest_bf16(value).bits) << std::hexfloat << value;
  }
}

TEST(Bf16, NanStaysNanEvenIfOnlyLowBitsSaySo) {
  for (const std::uint32_t bits : {0x7f800001u, 0xff800001u, 0x7fffffffu, 0x7fc00000u}) {
    const float wide = to_float(to_bf16(std::bit_cast<float>(bits)));
    EXPECT_TRUE(std::isnan(wide)) << std::hex << bits;
    EXPECT_EQ(std::signbit(wide), (bits >> 31) != 0) << std::hex << bits;
  }
}

TEST(Bf16, OverflowBecomesInfinity) {
  EXPECT_EQ(to_float(to_bf16(std::numeric_limits<float>::max())), std::numeric_limits<float>::infinity());
  EXPECT_EQ(to_float(to_bf16(std::numeric_limits<float>::lowest())), -std::numeric_limits<float>::infinity());
}

TEST(DType, SizesAndNames) {
  EXPECT_EQ(size_of(DType::kBf16), sizeof(Bf16));
  EXPECT_EQ(size_of(DType::kFp32), sizeof(float));
  EXPECT_EQ(to_string(DType::kBf16), "bf16");
  EXPECT_EQ(to_string(DType::kFp32), "fp32");
}

}  // namespace
}  // namespace moetax
