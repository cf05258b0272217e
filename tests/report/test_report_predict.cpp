// Predictions beside what was measured, on costs that are made up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cost/synthetic.h"
#include "moetax/report/bill.h"
#include "report/sample_ledgers.h"

namespace moetax::test {
namespace {

using testing::HasSubstr;
constexpr ExchangeUse kFlatOnly[] = {{ExchangeAlgorithm::kFlat, 5}};

// Four ranks; rank 1 comes 5 ms late and its clock is off.
Bill late_bill() {
  auto plans = sample::even_plans(4);
  plans[1].planted_ns = 5000 * sample::kUs;
  plans[1].clock_offset_ns = 3000 * sample::kUs;
  return sample::bill_of(sample::Simulation(plans).run(4));
}

TEST(Predictions, ASpanBeginsWithTheLastToCome) {
  const Bill bill = late_bill();
  for (const BillExchange& exchange : bill.exchanges) {
    ASSERT_TRUE(exchange.span_us);
    // 5 us of launch, 20 of packing, 40 of wire; the others' calls lasted for 5 ms.
    EXPECT_DOUBLE_EQ(*exchange.span_us, 65);
  }
  EXPECT_GT(bill.exchanges[0].us, 1000);
}

TEST(Predictions, StandBesideTheMeasuredTime) {
  Bill bill = late_bill();
  const MachineCosts machine = synthetic_machine(4, 2);
  const Traffic traffic = random_traffic(places_of(4, 2), 4, 3, 100, 1);
  for (BillExchange& exchange : bill.exchanges) exchange.internode_bytes = exchange.physical_bytes / 2;
  const Traffic layers[] = {traffic, traffic};
  add_predictions(machine, layers, kFlatOnly, 512, bill);
  for (const BillExchange& exchange : bill.exchanges) {
    const double us =
        predict_call(machine, traffic, *exchange_call(exchange.name), ExchangeAlgorithm::kFlat, 512).total_us();
    EXPECT_DOUBLE_EQ(exchange.predicted_us.value(), us);
    EXPECT_DOUBLE_EQ(exchange.prediction_error.value(), us / 65 - 1);
    // Half of what a rank moves crosses its share of the link, 50 MB/s.
    EXPECT_NEAR(exchange.roof_gbs.value(), 0.1, 0.002);
    EXPECT_DOUBLE_EQ(exchange.roof_share.value(), *exchange.gbs / *exchange.roof_gbs);
  }
  EXPECT_THAT(to_text(bill), HasSubstr("predicted"));
}

// Under uniform traffic the roof is link (n-1) / (n-g).
TEST(Predictions, TheRoofOfUniformTraffic) {
  Bill bill = late_bill();
  const Traffic traffic = random_traffic(places_of(4, 2), 4, 3, 20000, 1);
  std::int64_t physical = 0, internode = 0;
  for (Rank from = 0; from < 4; ++from) {
    for (Rank to = 0; to < 4; ++to) {
      if (from != to) physical += traffic.rows_at(from, to);
      if (from / 2 != to / 2) internode += traffic.rows_at(from, to);
    }
  }
  bill.exchanges[0].physical_bytes = physical;
  bill.exchanges[0].internode_bytes = internode;
  const MachineCosts machine = synthetic_machine(4, 2);
  add_predictions(machine, {&traffic, 1}, kFlatOnly, 512, bill);
  EXPECT_NEAR(bill.exchanges[0].roof_gbs.value() * 1e3, link_roof(machine, true) * 3 / 2, 1);
}

// What carried most of the steps is what the median of the measured times is of; the roof is always the same.
TEST(Predictions, AreMediansWhereTheExchangeChanged) {
  const MachineCosts machine = synthetic_machine(4, 2);
  const Traffic traffic = random_traffic(places_of(4, 2), 4, 3, 100, 1);
  const auto predicted = [&](ExchangeAlgorithm algorithm) {
    return predict_call(machine, traffic, ExchangeCall::kDispatch, algorithm, 512).total_us();
  };
  for (const auto& [flat, two_level] : {std::pair{7, 3}, std::pair{3, 7}}) {
    Bill bill = late_bill();
    for (BillExchange& exchange : bill.exchanges) exchange.internode_bytes = exchange.physical_bytes / 2;
    const ExchangeUse uses[] = {{ExchangeAlgorithm::kFlat, flat}, {ExchangeAlgorithm::kTwoLevel, two_level}};
    add_predictions(machine, {&traffic, 1}, uses, 512, bill);
    EXPECT_DOUBLE_EQ(bill.exchanges[0].predicted_us.value(),
                     predicted(flat > two_level ? ExchangeAlgorithm::kFlat : ExchangeAlgorithm::kTwoLevel));
    EXPECT_NEAR(bill.exchanges[0].roof_gbs.value(), 0.1, 0.002);
  }
}

TEST(Predictions, NothingIsSaidWithoutTraffic) {
  Bill bill = late_bill();
  add_predictions(synthetic_machine(4, 2), {}, kFlatOnly, 512, bill);
  for (const BillExchange& exchange : bill.exchanges) EXPECT_FALSE(exchange.predicted_us || exchange.roof_gbs);
  EXPECT_THAT(to_text(bill), testing::Not(HasSubstr("predicted")));
}

// Four nodes of one rank; streams from and to node 2 carry a tenth of the others.
std::vector<RankLedger> flowing_ledgers(int nodes, Node slow) {
  std::vector<RankLedger> ledgers = sample::Simulation(sample::even_plans(static_cast<std::size_t>(nodes))).run(2);
  for (RankLedger& to : ledgers) {
    to.node = to.rank;
    for (const RankLedger& from : ledgers) {
      if (from.rank == to.rank) continue;
      const bool is_slow = from.rank == slow || to.rank == slow;
      to.flows.push_back({from.rank, 1 << 20, is_slow ? 10'000'000 : 1'000'000});
    }
  }
  return ledgers;
}

TEST(SlowLink, IsNamedWithItsNode) {
  for (const Node slow : {0, 2, 3}) {
    Bill bill = sample::bill_of(flowing_ledgers(4, slow));
    ASSERT_EQ(bill.links.size(), 4u);
    for (const BillLink& link : bill.links) EXPECT_EQ(link.slow, link.node == slow);
    EXPECT_NEAR(bill.links[static_cast<std::size_t>(slow)].gbs, 0.105, 0.001);
    bill.config.hosts = {"a", "b", "c", "d"};
    bill.tax.wire_us = 0.5 * bill.step_us.mean;
    explain(bill);
    EXPECT_EQ(bill.findings[0].id, "slow-link");
    EXPECT_THAT(bill.findings[0].title, HasSubstr("slower than those of the others"));
    EXPECT_THAT(bill.findings[0].title, HasSubstr(std::string("(") + "abcd"[slow] + ")"));
  }
}

TEST(SlowLink, IsNotNamedWhereAllAreAlikeOrNobodyCouldTell) {
  for (const BillLink& link : sample::bill_of(flowing_ledgers(4, 9)).links) EXPECT_FALSE(link.slow);
  for (const BillLink& link : sample::bill_of(flowing_ledgers(2, 1)).links) EXPECT_FALSE(link.slow);
  EXPECT_TRUE(late_bill().links.empty());
}

TEST(SlowLink, ItsFactorIsThatOfTheTimeAgainstTheCalibration) {
  Bill bill = sample::bill_of(flowing_ledgers(4, 1));
  const MachineCosts machine = synthetic_machine(4, 1);
  const Traffic traffic = random_traffic(places_of(4, 1), 4, 3, 2000, 1);
  for (BillExchange& exchange : bill.exchanges) {
    const HopLoad load = hop_loads(traffic, *exchange_call(exchange.name), ExchangeAlgorithm::kFlat, 4096).front();
    exchange.span_us = 7 * load.of_node(traffic.places, 1) / 100;  // links of 100 MB/s
  }
  add_predictions(machine, {&traffic, 1}, kFlatOnly, 4096, bill);
  EXPECT_NEAR(bill.links[1].slowdown.value(), 7, 0.05);
  EXPECT_FALSE(bill.links[0].slowdown);
  bill.tax.wire_us = 0.5 * bill.step_us.mean;
  explain(bill);
  EXPECT_THAT(bill.findings[0].title, HasSubstr("the link of node 1 is 7.0"));
}

TEST(Predictions, TablesKeepWithinTheColumns) {
  Bill bill = late_bill();
  const MachineCosts machine = synthetic_machine(4, 2);
  const Traffic traffic = random_traffic(places_of(4, 2), 4, 3, 100000, 1);
  for (int i = 0; i < kNumExchangeAlgorithms; ++i) {
    const auto algorithm = static_cast<ExchangeAlgorithm>(i);
    bill.decomposition.push_back({to_string(algorithm), "dispatch",
                                  predict_call(machine, traffic, ExchangeCall::kDispatch, algorithm, 4096), 123456.7});
  }
  bill.choices = {{1, "two-level", std::string(150, 'x') + " and more"}};
  const std::string text = to_text(bill);
  for (std::size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string line = text.substr(begin, end - begin);
    if (line.find("xxx") == std::string::npos) {
      EXPECT_LE(line.size(), 100u) << line;
    }
  }
  EXPECT_THAT(text, HasSubstr("after 1 step: two-level, because"));
  EXPECT_THAT(text, HasSubstr("mesh2d"));
}

}  // namespace
}  // namespace moetax::test
