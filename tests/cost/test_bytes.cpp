#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <set>

#include "moetax/cost/bytes.h"
#include "moetax/route/routing_table.h"

namespace moetax {
namespace {

// Mean number of distinct owners over every k-subset of the experts, and of those that are not `own`.
struct Enumerated {
  double distinct = 0;
  double leaving = 0;  // mean over own rank
  double rows = 0;     // (token, expert) pairs on another rank, mean over own rank
};

Enumerated enumerate(int experts, int topk, int ranks) {
  const ExpertPlacement placement{experts, ranks};
  double subsets = 0;
  Enumerated sum;
  for (std::uint32_t subset = 0; subset < (1u << experts); ++subset) {
    if (std::popcount(subset) != topk) continue;
    ++subsets;
    std::set<Rank> owners;
    for (int e = 0; e < experts; ++e) {
      if ((subset >> e & 1u) != 0) owners.insert(placement.owner(e));
    }
    sum.distinct += static_cast<double>(owners.size());
    for (Rank own = 0; own < ranks; ++own) {
      sum.leaving += static_cast<double>(owners.size() - owners.count(own)) / ranks;
      for (int e = 0; e < experts; ++e) {
        if ((subset >> e & 1u) != 0 && placement.owner(e) != own) sum.rows += 1.0 / ranks;
      }
    }
  }
  return {sum.distinct / subsets, sum.leaving / subsets, sum.rows / subsets};
}

TEST(Bytes, EqualEnumerationOfEverySubset) {
  for (const int experts : {1, 2, 5, 8, 12}) {
    for (int topk = 1; topk <= experts && topk <= 6; ++topk) {
      for (const int ranks : {1, 2, 3, 4, 8, 13}) {
        SCOPED_TRACE(testing::Message() << "E=" << experts << " K=" << topk << " R=" << ranks);
        const Enumerated truth = enumerate(experts, topk, ranks);
        EXPECT_NEAR(expected_distinct_groups(experts, topk, ranks), truth.distinct, 1e-9);
        EXPECT_NEAR(expected_dispatch_bytes(10, experts, topk, ranks, 4096), 40960 * truth.leaving, 1e-5);
        EXPECT_NEAR(expected_combine_bytes(10, topk, ranks, 4096), 40960 * truth.rows, 1e-5);
      }
    }
  }
}

TEST(Bytes, AreThePublishedValues) {
  // DeepSeek-V2-Lite on 8 ranks: what de-duplication per rank saves against sending every row everywhere.
  EXPECT_NEAR(expected_distinct_groups(64, 6, 8) / 8, 0.57, 0.005);
  // Halving the experts at the same top-k sends more, not less.
  EXPECT_NEAR(expected_distinct_groups(16, 2, 4), 1.80, 0.005);
  EXPECT_NEAR(expected_distinct_groups(8, 2, 4), 1.86, 0.005);
}

TEST(Bytes, StayFiniteForTheLargestShapes) {
  EXPECT_NEAR(expected_distinct_groups(4096, 32, 4096), 32, 1e-6);
  EXPECT_DOUBLE_EQ(expected_distinct_groups(4096, 32, 1), 1);
  EXPECT_DOUBLE_EQ(expected_dispatch_bytes(4096, 256, 8, 1, 14336), 0);
  EXPECT_DOUBLE_EQ(expected_combine_bytes(0, 8, 8, 14336), 0);
}

}  // namespace
}  // namespace moetax
