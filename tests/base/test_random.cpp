// The statistics are of fixed streams, so these tests give the same answer every time.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <set>

#include "moetax/base/random.h"

namespace moetax {
namespace {

constexpr std::uint64_t kDraws = 1'000'000;

TEST(RandomStream, TheSameIndexGivesTheSameNumber) {
  constexpr RandomStream kFirst(7, 3), kSecond(7, 3);
  static_assert(kFirst.bits(12345) == kSecond.bits(12345));
  EXPECT_EQ(kFirst.normal(99), kSecond.normal(99));
}

TEST(RandomStream, SeedsStreamsAndIndicesAllMatter) {
  std::set<std::uint64_t> seen;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    for (std::uint64_t stream = 0; stream < 20; ++stream) {
      for (std::uint64_t i = 0; i < 50; ++i) seen.insert(RandomStream(seed, stream).bits(i));
    }
  }
  EXPECT_EQ(seen.size(), 20u * 20u * 50u);
}

TEST(RandomStream, UniformIsEvenOverItsRange) {
  const RandomStream random(1, 1);
  std::array<int, 16> bins{};
  double sum = 0;
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    const double u = random.uniform(i);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    ++bins[static_cast<std::size_t>(u * 16)];
    sum += u;
  }
  EXPECT_NEAR(sum / kDraws, 0.5, 0.0015);  // 5 standard errors
  double chi_squared = 0;
  for (const int bin : bins) chi_squared += std::pow(bin - kDraws / 16.0, 2) / (kDraws / 16.0);
  EXPECT_LT(chi_squared, 45);  // 15 degrees of freedom: beyond this with probability 1e-4
}

TEST(RandomStream, NormalHasMeanZeroVarianceOneAndBoundedTails) {
  const RandomStream random(2, 5);
  double sum = 0, squares = 0, cubes = 0;
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    const double x = random.normal(i);
    ASSERT_LT(std::abs(x), 3.47);  // the sum of four uniforms ends at sqrt(12)
    sum += x;
    squares += x * x;
    cubes += x * x * x;
  }
  EXPECT_NEAR(sum / kDraws, 0, 0.005);
  EXPECT_NEAR(squares / kDraws, 1, 0.006);
  EXPECT_NEAR(cubes / kDraws, 0, 0.02);
}

TEST(RandomStream, NeighbouringNumbersAndStreamsAreUncorrelated) {
  const RandomStream one(3, 1), other(3, 2);
  double lag = 0, cross = 0;
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    lag += double{one.normal(i)} * one.normal(i + 1);
    cross += double{one.normal(i)} * other.normal(i);
  }
  EXPECT_NEAR(lag / kDraws, 0, 0.005);
  EXPECT_NEAR(cross / kDraws, 0, 0.005);
}

TEST(Mix64, FlippingOneBitFlipsHalfOfTheResult) {
  for (int bit = 0; bit < 64; ++bit) {
    int flipped = 0;
    for (std::uint64_t i = 1; i <= 1000; ++i) flipped += std::popcount(mix64(i) ^ mix64(i ^ (std::uint64_t{1} << bit)));
    EXPECT_NEAR(flipped / 1000.0, 32, 1.5) << "bit " << bit;
  }
}

}  // namespace
}  // namespace moetax
