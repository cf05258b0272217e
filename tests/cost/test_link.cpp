#include <gtest/gtest.h>

#include <cmath>

#include "moetax/base/random.h"
#include "moetax/cost/link.h"

namespace moetax {
namespace {

std::vector<LinkSample> sizes_of(auto time_of) {
  std::vector<LinkSample> samples;
  for (double bytes = 8; bytes <= 16 << 20; bytes *= 4) samples.push_back({bytes, time_of(bytes)});
  return samples;
}

TEST(Link, ALineIsFoundExactly) {
  const LinkCost cost = fit_link(sizes_of([](double bytes) { return 12.5 + bytes / 124.0; }));
  ASSERT_EQ(cost.pieces.size(), 1u);
  EXPECT_NEAR(cost.pieces[0].start_up_us, 12.5, 1e-6);
  EXPECT_NEAR(cost.pieces[0].bytes_per_us, 124.0, 1e-6);
  EXPECT_LT(cost.worst_error, 1e-9);
}

TEST(Link, TwoProtocolsAreTwoPieces) {
  const auto time_of = [](double bytes) { return bytes < 65536 ? 2 + bytes / 5000 : 40 + bytes / 12000; };
  const LinkCost cost = fit_link(sizes_of(time_of));
  ASSERT_EQ(cost.pieces.size(), 2u);
  EXPECT_NEAR(cost.pieces[1].start_up_us, 40, 0.1);
  EXPECT_NEAR(cost.pieces[1].bytes_per_us, 12000, 10);
  EXPECT_NEAR(cost.time_us(1024), time_of(1024), 0.01);
  EXPECT_NEAR(cost.time_us(1 << 20), time_of(1 << 20), 0.5);
}

// Whatever was measured: costs are finite and positive, never fall with the size, and the stated errors are the true
// ones.
TEST(Link, AnySamplesGiveAUsableCost) {
  for (std::uint64_t round = 0; round < 200; ++round) {
    const RandomStream random(3, round);
    std::uint64_t next = 0;
    const double alpha = 50 * random.uniform(next++), beta = 10 + 30000 * random.uniform(next++);
    const double noise = random.uniform(next++);
    const auto samples =
        sizes_of([&](double bytes) { return 0.01 + (alpha + bytes / beta) * (1 + noise * random.uniform(next++)); });
    const LinkCost cost = fit_link(samples);
    ASSERT_FALSE(cost.pieces.empty());
    EXPECT_LE(cost.pieces.size(), 4u);
    double worst = 0, mean = 0;
    for (const LinkSample& sample : samples) {
      const double us = cost.time_us(sample.bytes);
      ASSERT_TRUE(std::isfinite(us) && us >= 0);
      worst = std::max(worst, std::abs(us / sample.us - 1));
      mean += std::abs(us / sample.us - 1) / static_cast<double>(samples.size());
    }
    EXPECT_NEAR(cost.worst_error, worst, 1e-12);
    EXPECT_NEAR(cost.mean_error, mean, 1e-12);
    EXPECT_LE(worst, 1.0);
    double before = 0;
    for (double bytes = 1; bytes < 1 << 25; bytes *= 1.1) {
      ASSERT_GE(cost.time_us(bytes), before);
      before = cost.time_us(bytes);
    }
    for (const LinkPiece& piece : cost.pieces) {
      EXPECT_GE(piece.start_up_us + piece.from_bytes / piece.bytes_per_us, 0);
      EXPECT_GT(piece.bytes_per_us, 0);
    }
  }
}

TEST(Link, TooLittleMeasuredGivesNoCost) {
  EXPECT_TRUE(fit_link({}).pieces.empty());
  const std::vector<LinkSample> one_size{{8, 1}, {8, 2}};
  EXPECT_TRUE(fit_link(one_size).pieces.empty());
  EXPECT_EQ(LinkCost().time_us(100), 0);
}

}  // namespace
}  // namespace moetax
