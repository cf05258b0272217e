// What the algorithms put on links, from the routing alone.
#include <gtest/gtest.h>

#include <numeric>

#include "cost/synthetic.h"
#include "moetax/cost/bytes.h"

namespace moetax::test {
namespace {

constexpr ExchangeCall kCalls[] = {ExchangeCall::kDispatch, ExchangeCall::kDispatchGrad, ExchangeCall::kRedispatch,
                                   ExchangeCall::kCombine, ExchangeCall::kCombineGrad};

double sum_of(const std::vector<HopLoad>& hops) {
  double sum = 0;
  for (const HopLoad& hop : hops) sum = std::accumulate(hop.out_bytes.begin(), hop.out_bytes.end(), sum);
  return sum;
}

TEST(Traffic, OneTokenOnTwoNodesByHand) {
  // Ranks 0, 1 | 2, 3. A token of rank 0 has two experts on rank 2 and one on rank 3, a row of 100 bytes.
  Traffic traffic = Traffic::none(places_of(4, 2));
  traffic.tokens = {1, 0, 0, 0};
  traffic.choices[2] = 2;
  traffic.choices[3] = 1;
  traffic.rows[2] = traffic.rows[3] = 1;
  traffic.node_rows[1] = 1;
  const auto out = [&](ExchangeCall call, ExchangeAlgorithm algorithm) {
    const auto hops = hop_loads(traffic, call, algorithm, 100);
    EXPECT_EQ(hops.size(), 1u);
    return hops[0].out_bytes;
  };
  using Bytes = std::vector<double>;
  EXPECT_EQ(out(ExchangeCall::kDispatch, ExchangeAlgorithm::kFlat), (Bytes{2 * 100 + 3 * 8, 0, 0, 0}));
  EXPECT_EQ(out(ExchangeCall::kDispatch, ExchangeAlgorithm::kTwoLevel), (Bytes{100 + 3 * 12, 0, 0, 0}));
  EXPECT_EQ(out(ExchangeCall::kDispatchGrad, ExchangeAlgorithm::kFlat), (Bytes{2 * 100 + 3 * 4, 0, 0, 0}));
  EXPECT_EQ(out(ExchangeCall::kRedispatch, ExchangeAlgorithm::kFlat), (Bytes{200, 0, 0, 0}));
  EXPECT_EQ(out(ExchangeCall::kCombine, ExchangeAlgorithm::kFlat), (Bytes{0, 0, 200, 100}));
  EXPECT_EQ(out(ExchangeCall::kCombine, ExchangeAlgorithm::kTwoLevel), (Bytes{0, 0, 100, 0}));
  EXPECT_EQ(out(ExchangeCall::kCombineGrad, ExchangeAlgorithm::kFlat), (Bytes{0, 0, 200 + 8, 100 + 4}));
}

TEST(Traffic, Fp32SumsAreTwiceAsLong) {
  Traffic traffic = random_traffic(places_of(8, 2), 8, 6, 64, 1);
  const double rounded = sum_of(hop_loads(traffic, ExchangeCall::kCombine, ExchangeAlgorithm::kTwoLevel, 4096));
  const double flat = sum_of(hop_loads(traffic, ExchangeCall::kCombine, ExchangeAlgorithm::kFlat, 4096));
  traffic.sum_scale = 2;
  EXPECT_DOUBLE_EQ(sum_of(hop_loads(traffic, ExchangeCall::kCombine, ExchangeAlgorithm::kTwoLevel, 4096)), 2 * rounded);
  EXPECT_DOUBLE_EQ(sum_of(hop_loads(traffic, ExchangeCall::kCombine, ExchangeAlgorithm::kFlat, 4096)), flat);
}

TEST(Traffic, NothingCrossesOnOneNode) {
  const Traffic traffic = random_traffic(places_of(4, 4), 4, 3, 50, 1);
  for (const ExchangeCall call : kCalls) {
    EXPECT_TRUE(hop_loads(traffic, call, ExchangeAlgorithm::kFlat, 64).empty());
  }
}

TEST(Traffic, WhatIsSentIsReceivedAndNoWayIsTooLong) {
  for (const auto& [ranks, per_node, group] :
       {std::tuple{4, 1, 4}, {8, 2, 8}, {7, 3, 7}, {6, 1, 6}, {8, 2, 4}, {9, 1, 9}, {6, 1, 2}, {12, 1, 6}}) {
    const Traffic traffic = random_traffic(places_of(ranks, per_node, group), 3, 3, 40, 7);
    const auto nodes = static_cast<std::size_t>(traffic.places.nodes());
    for (const ExchangeCall call : kCalls) {
      const double flat = sum_of(hop_loads(traffic, call, ExchangeAlgorithm::kFlat, 512));
      for (int i = 0; i < kNumExchangeAlgorithms; ++i) {
        const auto algorithm = static_cast<ExchangeAlgorithm>(i);
        SCOPED_TRACE(testing::Message() << ranks << '/' << per_node << ' ' << to_string(call) << ' '
                                        << to_string(algorithm));
        const auto hops = hop_loads(traffic, call, algorithm, 512);
        for (const HopLoad& hop : hops) {
          EXPECT_DOUBLE_EQ(std::accumulate(hop.out_bytes.begin(), hop.out_bytes.end(), 0.0),
                           std::accumulate(hop.in_bytes.begin(), hop.in_bytes.end(), 0.0));
        }
        const bool ring = algorithm == ExchangeAlgorithm::kRing, mesh = algorithm == ExchangeAlgorithm::kMesh2d;
        EXPECT_LE(hops.size(), ring ? nodes / 2 : mesh ? 2 : 1);
        if (algorithm == ExchangeAlgorithm::kDirect) {
          EXPECT_DOUBLE_EQ(sum_of(hops), flat);
        }
        if (ring || mesh) {
          EXPECT_GE(sum_of(hops), flat);
        }
      }
    }
  }
}

// One copy of a token and one sum per node, never more than one per rank and one per expert.
TEST(Traffic, TwoLevelSendsLess) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Traffic traffic = random_traffic(places_of(8, 2), 8, 6, 64, seed);
    for (const ExchangeCall call : {ExchangeCall::kDispatch, ExchangeCall::kCombine}) {
      EXPECT_LT(sum_of(hop_loads(traffic, call, ExchangeAlgorithm::kTwoLevel, 4096)),
                sum_of(hop_loads(traffic, call, ExchangeAlgorithm::kFlat, 4096)));
    }
  }
}

TEST(Traffic, BalancedRoutesSendWhatTheFormulasExpect) {
  const Traffic traffic = random_traffic(places_of(8, 2), 8, 6, 2000, 3);
  double rows = 0, node_rows = 0;
  for (const std::int64_t count : traffic.rows) rows += static_cast<double>(count);
  for (const std::int64_t count : traffic.node_rows) node_rows += static_cast<double>(count);
  EXPECT_NEAR(rows / 16000, expected_distinct_groups(64, 6, 8), 0.03);
  EXPECT_NEAR(node_rows / 16000, expected_distinct_groups(64, 6, 4), 0.03);
}

TEST(Traffic, CountedFromRoutesByHand) {
  // Ranks 0, 1 | 2; experts 0, 1 on rank 0, 2 on rank 1, 3 on rank 2. Two tokens of rank 1, top-3.
  const RankPlaces places({0, 0, 1}, 3);
  const std::vector<Rank> owner{0, 0, 1, 2};
  const std::vector<std::int32_t> chosen{0, 1, 3, 2, 0, 1};
  const auto counts = count_source(places, owner, {chosen.data(), 2, 3});
  EXPECT_EQ(counts, (std::vector<std::int64_t>{2, /*choices*/ 4, 1, 1, /*rows*/ 2, 1, 1, /*node rows*/ 2, 1}));
  std::vector<std::int64_t> all(3 * source_size(places));
  std::copy(counts.begin(), counts.end(), all.begin() + static_cast<std::ptrdiff_t>(counts.size()));
  const Traffic traffic = Traffic::of_sources(places, 4, 3, all);
  EXPECT_EQ(traffic.tokens, (std::vector<std::int64_t>{0, 2, 0}));
  EXPECT_EQ(traffic.choices_at(1, 0), 4);
  EXPECT_EQ(traffic.rows_at(1, 0), 2);
  EXPECT_EQ(traffic.rows_at(1, 2), 1);
  EXPECT_EQ(traffic.node_rows_at(1, 0), 2);
  EXPECT_EQ(traffic.node_rows_at(1, 1), 1);
  EXPECT_EQ(traffic.choices_at(0, 1), 0);
}

TEST(Traffic, CallsHaveTheirNames) {
  for (const ExchangeCall call : kCalls) EXPECT_EQ(exchange_call(to_string(call)), call);
  EXPECT_EQ(exchange_call("reduce (experts)"), std::nullopt);
}

}  // namespace
}  // namespace moetax::test
