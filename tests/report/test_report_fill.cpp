#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "moetax/base/random.h"
#include "moetax/report/bill.h"
#include "report/sample_ledgers.h"

namespace moetax {
namespace {

using sample::kUs;
using sample::RankPlan;
using sample::Simulation;

const BillFinding* find(const Bill& bill, const std::string& id) {
  const auto found =
      std::find_if(bill.findings.begin(), bill.findings.end(), [&](const BillFinding& f) { return f.id == id; });
  return found == bill.findings.end() ? nullptr : &*found;
}

double by_cause(const BillWaitedFor& waited, WaitCause cause) {
  return waited.by_cause_us[static_cast<std::size_t>(cause)];
}

void expect_sums(const Bill& bill) {
  for (const BillRank& r : bill.ranks) {
    const double sum = r.compute_us + *r.pack_us + *r.wire_us + *r.wait_us + *r.launch_us + r.other_us;
    EXPECT_NEAR(sum, r.step_us, 1e-6 * std::max(r.step_us, 1.0));
    EXPECT_NEAR(r.exposed_us, *r.wire_us + *r.wait_us + *r.launch_us, 1e-6);
    EXPECT_NEAR(r.comm_us, r.exposed_us + r.hidden_us, 1e-6);
    for (const BillWaitedFor& waited : r.waited_for) {
      double us = 0;
      for (const double part : waited.by_cause_us) us += part;
      EXPECT_NEAR(us, waited.us, 1e-6);
    }
  }
  EXPECT_NEAR(bill.tax.us + bill.compute_us + bill.other_us, bill.step_us.mean,
              1e-6 * std::max(bill.step_us.mean, 1.0));
  EXPECT_GE(bill.tax.share, 0);
  EXPECT_LE(bill.tax.share, 1);
}

TEST(FillBill, PlantedDelayIsWaitedForByTheOtherAndChargedToOther) {
  const Bill bill = sample::planted_bill();
  expect_sums(bill);
  ASSERT_EQ(bill.ranks[0].waited_for.size(), 1u);
  const BillWaitedFor& waited = bill.ranks[0].waited_for[0];
  EXPECT_EQ(waited.rank, 1);
  EXPECT_DOUBLE_EQ(waited.us, 5000);
  EXPECT_EQ(waited.cause, WaitCause::kPlanted);
  EXPECT_TRUE(bill.ranks[1].waited_for.empty());
  EXPECT_DOUBLE_EQ(*bill.ranks[0].wait_us, 5000);
  EXPECT_DOUBLE_EQ(bill.ranks[1].other_us, 5010);
  EXPECT_DOUBLE_EQ(*bill.tax.wait_us, 2500);
  // router 100 + experts 2000 + exchanges 2 * 65 + other 10 + delay 5000, on both ranks
  EXPECT_DOUBLE_EQ(bill.step_us.mean, 7240);
  EXPECT_EQ(bill.step_us.count, 4);
  EXPECT_DOUBLE_EQ(bill.step_us.std, 0);
  EXPECT_DOUBLE_EQ(bill.tax.share, (2500.0 + 130) / 7240);

  ASSERT_FALSE(bill.findings.empty());
  EXPECT_EQ(bill.findings[0].id, "wait-planted-delay");
  EXPECT_EQ(bill.findings[0].severity, "warning");
  EXPECT_DOUBLE_EQ(*bill.findings[0].gain_us_estimate, 5000);
  EXPECT_EQ(bill.findings[0].title, "rank 0 waits 5.00 ms per step for rank 1 (planted delay)");
}

TEST(FillBill, HotExpertsExplainTheWaitsAndAreNamed) {
  const Bill bill = sample::hot_bill();
  expect_sums(bill);
  ASSERT_EQ(bill.ranks[0].waited_for.size(), 1u);
  const BillWaitedFor& waited = bill.ranks[0].waited_for[0];
  EXPECT_EQ(waited.rank, 1);
  EXPECT_DOUBLE_EQ(waited.us, 6000);
  EXPECT_EQ(waited.cause, WaitCause::kExpertLoad);
  EXPECT_EQ(waited.cause_text, "expert load, 2.46x the mean rows: experts 3, 2");
  EXPECT_DOUBLE_EQ(by_cause(waited, WaitCause::kExpertLoad), 6000);
  EXPECT_DOUBLE_EQ(*bill.ranks[1].expert_rows, 3200);
  EXPECT_DOUBLE_EQ(*bill.routing.rank_max_over_mean, 800.0 / 325);
  EXPECT_DOUBLE_EQ(bill.routing.expert_max_over_mean, 500.0 / 162.5);
  EXPECT_EQ(bill.routing.experts_never_chosen, 1);
  EXPECT_NEAR(bill.routing.entropy_max_bits, 3, 1e-12);

  EXPECT_EQ(bill.findings[0].id, "wait-expert-load");
  // compute of rank 1: 100 + 8000; at the mean rows it would be 325 / 800 of that; no rank waits longer than 7000
  EXPECT_NEAR(*bill.findings[0].gain_us_estimate, 8100 * (1 - 325.0 / 800), 1e-6);
  EXPECT_EQ(find(bill, "expert-load-uneven"), nullptr);  // the wait says it already
  EXPECT_NE(find(bill, "experts-never-chosen"), nullptr);
}

TEST(FillBill, DescheduledPeerAmong64Ranks) {
  const Bill bill = sample::wide_bill();
  expect_sums(bill);
  EXPECT_EQ(bill.findings[0].id, "wait-descheduled");
  EXPECT_NE(bill.findings[0].title.find("63 ranks wait for rank 17"), std::string::npos) << bill.findings[0].title;
  for (const BillRank& rank : bill.ranks) {
    if (rank.rank == 17) {
      EXPECT_TRUE(rank.waited_for.empty());
      continue;
    }
    ASSERT_EQ(rank.waited_for.size(), 1u);
    EXPECT_EQ(rank.waited_for[0].rank, 17);
    EXPECT_DOUBLE_EQ(by_cause(rank.waited_for[0], WaitCause::kDescheduled), 3000);
  }
  EXPECT_EQ(bill.exchanges[1].last_rank, 17);
}

TEST(FillBill, SlowerComputeForTheSameRows) {
  auto plans = sample::even_plans(2);
  plans[0].experts_ns += 700 * kUs;
  const Bill bill = sample::bill_of(Simulation(plans).run(2));
  EXPECT_EQ(bill.ranks[1].waited_for.at(0).cause, WaitCause::kCompute);
  EXPECT_DOUBLE_EQ(bill.ranks[1].waited_for[0].us, 700);
}

TEST(FillBill, SlowerCopyingDelaysTheSameExchangeAndTheNext) {
  auto plans = sample::even_plans(2);
  plans[1].pack_ns += 300 * kUs;  // before it has come to an exchange
  const Bill packing = sample::bill_of(Simulation(plans).run(3));
  EXPECT_DOUBLE_EQ(by_cause(packing.ranks[0].waited_for.at(0), WaitCause::kCopying), 600);

  plans = sample::even_plans(2);
  plans[1].wire_ns += 300 * kUs;  // after everyone has come: late for the next one
  const Bill wire = sample::bill_of(Simulation(plans).run(1));
  EXPECT_EQ(wire.ranks[0].waited_for.at(0).rank, 1);
  EXPECT_DOUBLE_EQ(wire.ranks[0].waited_for[0].us, 300);
  EXPECT_DOUBLE_EQ(by_cause(wire.ranks[0].waited_for[0], WaitCause::kLag), 300);
}

TEST(FillBill, LagTravelsIntoTheNextStep) {
  auto plans = sample::even_plans(2);
  plans[1].other_ns += 400 * kUs;  // after the last exchange of the step
  const Bill bill = sample::bill_of(Simulation(plans).run(3));
  ASSERT_EQ(bill.ranks[0].waited_for.size(), 1u);
  EXPECT_DOUBLE_EQ(bill.ranks[0].waited_for[0].us, 800.0 / 3);  // in two of three steps
  EXPECT_EQ(bill.ranks[0].waited_for[0].cause, WaitCause::kStepLag);
  // There is no exchange before the first of a step, so nothing may speak of one.
  EXPECT_EQ(bill.ranks[0].waited_for[0].cause_text, "began the step later");
  ASSERT_NE(find(bill, "wait-step-lag"), nullptr);
  EXPECT_EQ(find(bill, "wait-lag"), nullptr);
  EXPECT_EQ(find(bill, "wait-step-lag")->title, "rank 0 waits 267 us per step for rank 1 (began the step later)");
}

// Rank 1 begins the only step 6 ms late: rank 0's step is longer than the mean, and its wait is too.
TEST(FillBill, AWaitLongerThanTheMeanStepIsPartOfTheRanksOwn) {
  auto ledgers = Simulation(sample::even_plans(2)).run(1);
  LedgerExchange& dispatch = ledgers[0].exchanges[0];
  ledgers[0].waits.push_back({0, 0, 1, dispatch.start_ns, dispatch.start_ns + 6000 * kUs, 6000 * kUs, 0});
  StepRecord& step = ledgers[0].steps[0];
  step.end_ns += 6000 * kUs;
  step.part_ns[static_cast<std::size_t>(Part::kWait)] += 6000 * kUs;
  for (auto* ns : {&ledgers[1].steps[0].start_ns, &ledgers[1].steps[0].end_ns, &ledgers[1].exchanges[0].start_ns,
                   &ledgers[1].exchanges[0].end_ns, &ledgers[1].exchanges[0].approach.start_ns}) {
    *ns += 6000 * kUs;
  }
  const Bill bill = sample::bill_of(ledgers);
  ASSERT_LT(bill.step_us.mean, 6000);
  ASSERT_EQ(bill.findings.at(0).id, "wait-step-lag");
  EXPECT_EQ(bill.findings[0].title, "rank 0 waits 6.00 ms of its 8.24 ms step for rank 1 (began the step later)");
  EXPECT_THAT(bill.findings[0].evidence, testing::HasSubstr("rank 0 waits longest, 6.00 ms of its 8.24 ms step"));
}

TEST(FillBill, AWaitForAPeerNotNamedHasASentence) {
  auto ledgers = Simulation(sample::even_plans(2)).run(1);
  ledgers[0].waits.push_back({0, 0, kNoRank, 5000, 5000 + 900 * kUs, 900 * kUs, 0});
  const Bill bill = sample::bill_of(ledgers);
  ASSERT_NE(find(bill, "wait-unknown"), nullptr);
  EXPECT_EQ(find(bill, "wait-unknown")->title, "rank 0 waits 900 us per step for a peer not named (unknown)");
}

TEST(FillBill, DescheduledInTheExchangeBefore) {
  auto plans = sample::even_plans(2);
  plans[1].wire_ns += 300 * kUs;
  auto ledgers = Simulation(plans).run(1);
  ledgers[1].exchanges[1].approach.off_cpu_ns = 250 * kUs;
  const Bill bill = sample::bill_of(ledgers);
  EXPECT_DOUBLE_EQ(by_cause(bill.ranks[0].waited_for.at(0), WaitCause::kDescheduled), 250);
  EXPECT_DOUBLE_EQ(by_cause(bill.ranks[0].waited_for[0], WaitCause::kLag), 50);
}

// Eight ranks on two cores: everybody is off the CPU in proportion to what it computes, and more rows are the reason.
TEST(FillBill, MoreRowsExplainLongerTurns) {
  auto plans = sample::even_plans(2);
  plans[0].expert_tokens = plans[1].expert_tokens = {50, 50, 50, 50, 150, 150, 150, 150};
  for (std::size_t r = 0; r < 2; ++r) {
    plans[r].experts_ns = (r == 0 ? 1000 : 3000) * kUs;
    plans[r].asleep_ns = (r == 0 ? 1000 : 3000) * kUs;
  }
  const Bill bill = sample::bill_of(Simulation(plans).run(1));
  const BillWaitedFor& waited = bill.ranks[0].waited_for.at(0);
  EXPECT_DOUBLE_EQ(waited.us, 4000);
  EXPECT_EQ(waited.cause, WaitCause::kExpertLoad);
  EXPECT_NEAR(by_cause(waited, WaitCause::kExpertLoad), 4000.0 * 2 / 3, 1e-6);
}

// Two layers, two reductions each: the third of the backward is the first layer's, and only there rank 1 has more rows.
TEST(FillBill, ReductionsBelongToTheirLayer) {
  auto ledgers = Simulation(sample::even_plans(2)).run(1);
  for (RankLedger& ledger : ledgers) {
    ledger.names = {"reduce", "backward", "all-reduce"};
    ledger.expert_tokens = {{10, 10, 10, 10, 90, 90, 90, 90}, {50, 50, 50, 50, 50, 50, 50, 50}};
    ledger.exchanges.assign(4, {});
    for (std::size_t i = 0; i < 4; ++i) {
      ledger.exchanges[i].phase = 1;
      ledger.exchanges[i].family = 2;
      ledger.exchanges[i].number = i + 1;
    }
  }
  ledgers[1].exchanges[2].approach.part_ns[static_cast<std::size_t>(Part::kCompute)] = 900 * kUs;
  ledgers[0].waits.push_back({0, 2, 1, 0, 900 * kUs, 900 * kUs, 0});
  const Bill bill = sample::bill_of(ledgers);
  EXPECT_DOUBLE_EQ(by_cause(bill.ranks[0].waited_for.at(0), WaitCause::kExpertLoad), 800);  // 1 - 80 / 720 of it
}

TEST(FillBill, ManyTurnsAreNoFixedCost) {
  auto plans = sample::even_plans(2);
  for (RankPlan& plan : plans) plan.launch_ns = 2000 * kUs;
  Bill bill = sample::bill_of(Simulation(plans).run(1));
  EXPECT_EQ(bill.findings.at(0).id, "launch-bound");
  EXPECT_DOUBLE_EQ(bill.findings[0].gain_us_estimate.value_or(0), 2000);
  bill.machine.cores = 1;
  explain(bill);
  EXPECT_FALSE(bill.findings.at(0).gain_us_estimate.has_value());
  EXPECT_NE(bill.findings[0].cause.find("2 threads on 1 core"), std::string::npos);
}

TEST(FillBill, AWaitThatOutlastsThePeersArrivalIsAWakeUp) {
  auto plans = sample::even_plans(2);
  plans[1].clock_offset_ns = 3000 * kUs;
  auto ledgers = Simulation(plans).run(1);
  const std::int64_t start = ledgers[0].exchanges[0].start_ns;
  ledgers[0].waits.push_back({0, 0, 1, start, start + 50 * kUs, 50 * kUs, 0});
  const Bill bill = sample::bill_of(ledgers);
  EXPECT_DOUBLE_EQ(by_cause(bill.ranks[0].waited_for.at(0), WaitCause::kWakeUp), 50);
}

TEST(FillBill, AWaitWithoutAnExchangeOrAPeerIsUnknown) {
  auto ledgers = Simulation(sample::even_plans(2)).run(1);
  ledgers[0].waits.push_back({0, -1, 1, 5000, 9000, 4000, 0});
  ledgers[0].waits.push_back({0, 0, 77, 5000, 6000, 1000, 0});
  ledgers[0].waits.push_back({0, 0, kNoRank, 5000, 5500, 500, 0});
  const Bill bill = sample::bill_of(ledgers);
  ASSERT_EQ(bill.ranks[0].waited_for.size(), 3u);
  for (const BillWaitedFor& waited : bill.ranks[0].waited_for) EXPECT_EQ(waited.cause, WaitCause::kUnknown);
  EXPECT_EQ(bill.ranks[0].waited_for[0].rank, 1);
}

TEST(FillBill, ExchangesAreGroupedWithBytesPerStep) {
  const Bill bill = sample::wire_bill();
  ASSERT_EQ(bill.exchanges.size(), 2u);
  const BillExchange& dispatch = bill.exchanges[0];
  EXPECT_EQ(dispatch.name, "dispatch");
  EXPECT_EQ(dispatch.phase, "forward");
  EXPECT_EQ(dispatch.calls, 3);
  EXPECT_EQ(dispatch.logical_bytes, 6 << 20);  // two ranks
  EXPECT_EQ(dispatch.physical_bytes, 2 << 20);
  EXPECT_DOUBLE_EQ(*dispatch.transfer_us, 900);
  EXPECT_NEAR(*dispatch.gbs, (1 << 20) / 900e3, 1e-9);
  EXPECT_EQ(dispatch.last_rank, kNoRank);  // nobody waited
  EXPECT_EQ(bill.findings[0].id, "wire-bound");
  EXPECT_DOUBLE_EQ(*bill.findings[0].gain_us_estimate, 1800);  // less than the compute
}

TEST(FillBill, OneRankHasASmallTax) {
  const Bill bill = sample::one_rank_bill();
  expect_sums(bill);
  EXPECT_EQ(bill.findings[0].id, "tax-small");
  EXPECT_TRUE(bill.ranks[0].waited_for.empty());
  EXPECT_NEAR(*bill.gflops, 1e9 / (bill.step_us.mean * 1e3), 1e-9);
}

TEST(FillBill, NoStepsNoNumbersNoNan) {
  const Bill bill = sample::no_steps_bill();
  expect_sums(bill);
  ASSERT_EQ(bill.findings.size(), 1u);
  EXPECT_EQ(bill.findings[0].id, "nothing-measured");
  EXPECT_EQ(bill.findings[0].severity, "error");
  EXPECT_EQ(bill.tax.share, 0);
  EXPECT_FALSE(bill.gflops.has_value());
  EXPECT_EQ(to_json(bill).find("nan"), std::string::npos);
  const Bill nothing = sample::bill_of({});
  EXPECT_EQ(nothing.findings.at(0).id, "nothing-measured");
  EXPECT_FALSE(to_text(nothing).empty());
}

TEST(FillBill, StepsThatNotAllRanksMeasuredAreLeftOut) {
  auto ledgers = Simulation(sample::even_plans(2)).run(4);
  ledgers[1].steps.resize(3);
  const Bill bill = sample::bill_of(ledgers);
  EXPECT_EQ(bill.step_us.count, 3);
  EXPECT_EQ(bill.exchanges.at(0).calls, 3);
  expect_sums(bill);
}

TEST(FillBill, RoutingOfReplicasCountsEachReplicasOwnTokens) {
  auto plans = sample::even_plans(4);
  for (std::size_t r = 0; r < 2; ++r) plans[r].expert_tokens.assign(8, 10);
  for (std::size_t r = 2; r < 4; ++r) plans[r].expert_tokens.assign(8, 30);
  Bill bill;
  bill.config.experts = 8;
  bill.config.experts_per_rank = {4, 4, 4, 4};  // two replicas of two ranks
  fill_bill(Simulation(plans).run(1), bill);
  EXPECT_DOUBLE_EQ(*bill.ranks[0].expert_rows, 80);
  EXPECT_DOUBLE_EQ(*bill.ranks[3].expert_rows, 240);
  bill.config.experts_per_rank = {4, 3, 4, 4};  // no placement: unknown, not guessed
  fill_bill(Simulation(plans).run(1), bill);
  EXPECT_FALSE(bill.ranks[0].expert_rows.has_value());
}

TEST(FillBill, MoreRanksThanExperts) {
  auto plans = sample::even_plans(4, 2);
  const Bill bill = sample::bill_of(Simulation(plans).run(1), 2);
  EXPECT_DOUBLE_EQ(*bill.ranks[0].expert_rows, 512);
  EXPECT_DOUBLE_EQ(*bill.ranks[3].expert_rows, 0);
  EXPECT_DOUBLE_EQ(*bill.routing.rank_max_over_mean, 2);
}

TEST(FillBill, FillingTwiceGivesTheSame) {
  const auto ledgers = Simulation(sample::even_plans(3)).run(2);
  Bill bill = sample::bill_of(ledgers);
  const std::string once = to_json(bill);
  fill_bill(ledgers, bill);
  explain(bill);
  EXPECT_EQ(to_json(bill), once);
}

// Whatever the ranks do: parts add up, waits are explained in full, estimates stay within the step.
TEST(FillBill, PropertyPartsAddUp) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const RandomStream random(seed, 1);
    auto plans = sample::even_plans(1 + random.bits(0) % 9);
    for (std::size_t r = 0; r < plans.size(); ++r) {
      RankPlan& plan = plans[r];
      std::uint64_t i = 100 * (r + 1);
      for (std::int64_t* ns : {&plan.router_ns, &plan.planted_ns, &plan.asleep_ns, &plan.experts_ns, &plan.other_ns,
                               &plan.launch_ns, &plan.pack_ns, &plan.wire_ns}) {
        *ns = random.bits(i) % 3 == 0 ? 0 : static_cast<std::int64_t>(random.bits(i + 50) % 3'000'000);
        ++i;
      }
      for (auto& tokens : plan.expert_tokens) tokens = static_cast<std::int64_t>(random.bits(++i) % 100);
    }
    const Bill bill = sample::bill_of(Simulation(plans).run(static_cast<int>(random.bits(1) % 4)));
    expect_sums(bill);
    for (const BillRank& rank : bill.ranks) {
      double waited = 0;
      for (const BillWaitedFor& entry : rank.waited_for) waited += entry.us;
      EXPECT_NEAR(waited, *rank.wait_us, 1e-6) << "seed " << seed;
    }
    for (const BillFinding& finding : bill.findings) {
      EXPECT_LE(finding.gain_us_estimate.value_or(0), bill.step_us.mean) << finding.id;
    }
  }
}

}  // namespace
}  // namespace moetax
