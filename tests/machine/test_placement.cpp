#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "machine/placement.h"

namespace moetax {
namespace {

using testing::ElementsAre;

std::vector<int> nodes(std::initializer_list<int> cores_per_node) {
  std::vector<int> node_of_core;
  int node = 0;
  for (const int cores : cores_per_node)
    node_of_core.insert(node_of_core.end(), static_cast<std::size_t>(cores), node++);
  return node_of_core;
}

TEST(ChooseCores, SpreadsRanksOverTheNodes) {
  const auto machine = nodes({4, 4});
  EXPECT_THAT(*choose_cores(machine, 0, 2, 1), ElementsAre(0));
  EXPECT_THAT(*choose_cores(machine, 1, 2, 1), ElementsAre(4));
  EXPECT_THAT(*choose_cores(machine, 0, 1, 8), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(*choose_cores(machine, 3, 4, 2), ElementsAre(6, 7));
  // Three ranks of three on nodes of six: a plain split into thirds would straddle the boundary.
  EXPECT_THAT(*choose_cores(nodes({6, 6}), 1, 3, 3), ElementsAre(3, 4, 5));
  EXPECT_THAT(*choose_cores(nodes({6, 6}), 2, 3, 3), ElementsAre(6, 7, 8));
}

TEST(ChooseCores, LargerNodesTakeMore) {
  const auto machine = nodes({2, 6});
  int on_large = 0;
  for (Rank rank = 0; rank < 4; ++rank) on_large += choose_cores(machine, rank, 4, 1)->front() >= 2 ? 1 : 0;
  EXPECT_EQ(on_large, 3);
}

TEST(ChooseCores, NothingWhenTheyDoNotFit) {
  EXPECT_FALSE(choose_cores(nodes({2}), 0, 3, 1));
  EXPECT_FALSE(choose_cores(nodes({2}), 0, 1, 3));
  EXPECT_FALSE(choose_cores({}, 0, 1, 1));
  EXPECT_FALSE(choose_cores(nodes({2}), 0, 1 << 20, 1 << 20));
}

TEST(ChooseCores, NoTwoRanksShareACore) {
  for (const auto& machine : {nodes({1}), nodes({2}), nodes({8}), nodes({4, 4}), nodes({3, 5}), nodes({2, 1, 7})}) {
    const int cores = static_cast<int>(machine.size());
    for (int threads = 1; threads <= cores; ++threads) {
      for (int ranks = 1; ranks * threads <= cores; ++ranks) {
        std::set<int> used;
        bool straddles = false;
        int room = 0;  // ranks that fit without straddling
        for (int node = 0; node < 3; ++node)
          room += static_cast<int>(std::count(machine.begin(), machine.end(), node)) / threads;
        for (Rank rank = 0; rank < ranks; ++rank) {
          const auto chosen = choose_cores(machine, rank, ranks, threads);
          ASSERT_TRUE(chosen);
          used.insert(chosen->begin(), chosen->end());
          straddles |= machine.at(static_cast<std::size_t>(chosen->front())) !=
                       machine.at(static_cast<std::size_t>(chosen->back()));
        }
        EXPECT_EQ(static_cast<int>(used.size()), ranks * threads);
        EXPECT_EQ(straddles, room < ranks) << ranks << " ranks of " << threads;
      }
    }
  }
}

}  // namespace
}  // namespace moetax
