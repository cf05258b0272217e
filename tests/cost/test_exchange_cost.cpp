// Predictions on links that are known exactly.
#include <gtest/gtest.h>

#include <chrono>

#include <cmath>

#include "cost/synthetic.h"

namespace moetax::test {
namespace {

constexpr double kRow = 4096;

CallCost predict(const MachineCosts& machine, const Traffic& traffic, ExchangeCall call, ExchangeAlgorithm algorithm) {
  return predict_call(machine, traffic, call, algorithm, kRow);
}

TEST(ExchangeCost, IsExactOnASyntheticLink) {
  const Traffic traffic = random_traffic(places_of(8, 2), 8, 6, 512, 1);
  const MachineCosts machine = synthetic_machine(8, 2);
  for (const auto algorithm : {ExchangeAlgorithm::kFlat, ExchangeAlgorithm::kTwoLevel}) {
    const HopLoad load = hop_loads(traffic, ExchangeCall::kCombine, algorithm, kRow).front();
    const CallCost cost = predict(machine, traffic, ExchangeCall::kCombine, algorithm);
    // Two-level stands for a node: three peers, flat six. 20 us for the first, 2 us for each further one.
    EXPECT_NEAR(cost.start_up_us, algorithm == ExchangeAlgorithm::kFlat ? 30 : 24, 1e-6);
    EXPECT_NEAR(cost.bandwidth_us, load.most_of_node(traffic.places) / 100, 1e-3);
    EXPECT_EQ(cost.hops_us, 0);
    EXPECT_NEAR(cost.sync_us, 25, 1e-9);
    EXPECT_LT(cost.copy_us, 1);
  }
}

TEST(ExchangeCost, HopsAreToldApart) {
  const Traffic traffic = random_traffic(places_of(8, 1), 8, 6, 512, 1);
  const MachineCosts machine = synthetic_machine(8, 1);
  const CallCost ring = predict(machine, traffic, ExchangeCall::kDispatch, ExchangeAlgorithm::kRing);
  const CallCost mesh = predict(machine, traffic, ExchangeCall::kDispatch, ExchangeAlgorithm::kMesh2d);
  const CallCost flat = predict(machine, traffic, ExchangeCall::kDispatch, ExchangeAlgorithm::kFlat);
  EXPECT_EQ(flat.hops_us, 0);
  EXPECT_NEAR(ring.bandwidth_us, flat.bandwidth_us, 0.01 * flat.bandwidth_us);
  // Eight nodes in a ring: 16 / 7 hops on average; in a grid of 2 x 4: 10 / 7.
  EXPECT_NEAR(ring.hops_us / ring.bandwidth_us, 16.0 / 7 - 1, 0.1);
  EXPECT_NEAR(mesh.hops_us / mesh.bandwidth_us, 10.0 / 7 - 1, 0.1);
  // Direct has half the bandwidth on this machine where all links are as full; the fullest has its own.
  const CallCost direct = predict(machine, traffic, ExchangeCall::kDispatch, ExchangeAlgorithm::kDirect);
  EXPECT_NEAR(direct.bandwidth_us, 2 * flat.bandwidth_us, 0.08 * flat.bandwidth_us);
}

TEST(ExchangeCost, NeverFallsWithTheBytes) {
  for (const auto& [ranks, per_node] : {std::pair{4, 4}, {8, 2}, {6, 1}, {7, 3}}) {
    const MachineCosts machine = synthetic_machine(ranks, per_node);
    for (int i = 0; i < kNumExchangeAlgorithms; ++i) {
      for (const ExchangeCall call : {ExchangeCall::kDispatch, ExchangeCall::kCombine, ExchangeCall::kCombineGrad}) {
        double before = 0;
        for (const std::int64_t tokens : {0, 1, 4, 64, 256, 300, 1024}) {
          const Traffic traffic = random_traffic(places_of(ranks, per_node), 4, 3, tokens, 5);
          const double us = predict(machine, traffic, call, static_cast<ExchangeAlgorithm>(i)).total_us();
          ASSERT_TRUE(std::isfinite(us));
          EXPECT_GE(us, before) << tokens << " tokens";
          before = us;
        }
      }
    }
  }
}

TEST(ExchangeCost, TheFastestComesFirst) {
  const MachineCosts machine = synthetic_machine(8, 2);
  const auto ranked = rank_algorithms(machine, random_traffic(places_of(8, 2), 8, 6, 512, 1), kRow);
  ASSERT_EQ(ranked.size(), 5u);
  EXPECT_EQ(ranked[0].algorithm, ExchangeAlgorithm::kTwoLevel);
  EXPECT_EQ(ranked[1].algorithm, ExchangeAlgorithm::kFlat);
  for (std::size_t i = 1; i < ranked.size(); ++i) EXPECT_LE(ranked[i - 1].predicted_us, ranked[i].predicted_us);
  EXPECT_EQ(rank_algorithms(machine, random_traffic(places_of(4, 4), 8, 6, 512, 1), kRow).size(), 1u);
}

TEST(ExchangeCost, SaysWhatWasNotMeasured) {
  MachineCosts machine = synthetic_machine(8, 2);
  EXPECT_EQ(cannot_predict(machine, places_of(8, 2)), std::nullopt);
  EXPECT_EQ(cannot_predict(machine, places_of(2, 2)), std::nullopt);
  std::erase_if(machine.links, [](const MeasuredLink& link) { return link.link == LinkClass::kLinkStream; });
  machine.nodes = 1;
  EXPECT_EQ(cannot_predict(machine, places_of(2, 2)), std::nullopt);
  EXPECT_EQ(cannot_predict(machine, places_of(8, 2)),
            "link-stream was not measured on the 8 ranks and 1 node of the calibration: measure with as many as this "
            "run has");
}

// Groups that fit into nodes are priced as what they are, however many nodes there are.
TEST(ExchangeCost, GroupsInsideNodesDoNotCross) {
  const MachineCosts machine = synthetic_machine(8, 2);
  const RankPlaces inside = places_of(8, 2, 2), one_node = places_of(2, 2);
  EXPECT_FALSE(inside.crosses());
  EXPECT_TRUE(places_of(8, 2, 4).crosses());
  const Traffic apart = random_traffic(inside, 8, 4, 100, 1), alone = random_traffic(one_node, 8, 4, 100, 1);
  for (const ExchangeCall call : {ExchangeCall::kDispatch, ExchangeCall::kCombine}) {
    const CallCost cost = predict_call(machine, apart, call, ExchangeAlgorithm::kFlat, 4096);
    EXPECT_DOUBLE_EQ(cost.sync_us, predict_call(machine, alone, call, ExchangeAlgorithm::kFlat, 4096).sync_us);
    EXPECT_EQ(cost.start_up_us, 0);
  }
  EXPECT_EQ(rank_algorithms(machine, apart, 4096).size(), 1u);
}

// All algorithms for a thousand ranks, between two steps.
TEST(ExchangeCost, PricesManyRanksInTime) {
  const Traffic traffic = random_traffic(places_of(512, 8), 1, 8, 16, 1);
  const MachineCosts machine = synthetic_machine(512, 8);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(rank_algorithms(machine, traffic, 4096).size(), static_cast<std::size_t>(kNumExchangeAlgorithms));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(took.count(), 5);  // a third of a second; each step of the cube of 512 would take minutes
}

TEST(ExchangeCost, TheRoofIsThatOfTheLinkInUse) {
  const MachineCosts machine = synthetic_machine(8, 2);
  EXPECT_NEAR(link_roof(machine, true), 50, 0.5);  // of the node's 100 MB/s
  EXPECT_GT(link_roof(machine, false), 1e6);       // of memory
}

}  // namespace
}  // namespace moetax::test
