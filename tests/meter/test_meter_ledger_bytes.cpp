#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "moetax/base/random.h"
#include "moetax/report/bill.h"
#include "report/sample_ledgers.h"

namespace moetax {
namespace {

using testing::HasSubstr;

RankLedger sample_ledger() {
  auto plans = sample::even_plans(2);
  plans[0].planted_ns = 1000;
  plans[1].clock_offset_ns = -77;
  RankLedger ledger = sample::Simulation(plans).run(3)[1];
  ledger.node = 2;
  ledger.spans_dropped = 4;
  ledger.records_dropped = 1;
  ledger.expert_tokens = {{1, 2, 3}, {}, {4}};
  ledger.flows = {{0, 4096, 1000}, {5, 1, 2}};
  return ledger;
}

TEST(LedgerBytes, RoundTrip) {
  const RankLedger ledger = sample_ledger();
  const auto bytes = ledger.to_bytes();
  const auto back = RankLedger::from_bytes(bytes);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->to_bytes(), bytes);
  EXPECT_EQ(back->rank, ledger.rank);
  EXPECT_EQ(back->node, 2);
  EXPECT_EQ(back->names, ledger.names);
  EXPECT_EQ(back->expert_tokens, ledger.expert_tokens);
  EXPECT_EQ(back->exchanges.size(), ledger.exchanges.size());
  EXPECT_EQ(back->exchanges[3].approach.part_ns, ledger.exchanges[3].approach.part_ns);
  EXPECT_EQ(back->waits.size(), ledger.waits.size());
  EXPECT_EQ(back->spans.back().part, ledger.spans.back().part);
  EXPECT_EQ(back->pinning, ledger.pinning);
  ASSERT_EQ(back->flows.size(), 2u);
  EXPECT_EQ(back->flows[0].bytes, 4096);
  EXPECT_EQ(back->flows[1].peer, 5);
  EXPECT_EQ(back->flops, ledger.flops);
  EXPECT_TRUE(RankLedger::from_bytes(RankLedger{}.to_bytes()));
}

TEST(LedgerBytes, EveryCutIsAnError) {
  const auto bytes = sample_ledger().to_bytes();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const auto back = RankLedger::from_bytes(std::span(bytes).first(size));
    ASSERT_FALSE(back) << size;
    EXPECT_EQ(back.error().code, ErrorCode::kBadInput);
  }
  auto longer = bytes;
  longer.push_back(std::byte{0});
  const auto back = RankLedger::from_bytes(longer);
  ASSERT_FALSE(back);
  EXPECT_THAT(back.error().message, HasSubstr("bytes follow its end"));
}

TEST(LedgerBytes, NonsenseIsNamed) {
  const auto error_of = [](const auto& spoil) {
    RankLedger ledger = sample_ledger();
    spoil(ledger);
    const auto back = RankLedger::from_bytes(ledger.to_bytes());
    return back ? std::string("accepted") : back.error().message;
  };
  EXPECT_THAT(error_of([](RankLedger& l) { l.exchanges[0].step = 3; }), HasSubstr("index"));
  EXPECT_THAT(error_of([](RankLedger& l) { l.exchanges[0].name = -1; }), HasSubstr("index"));
  EXPECT_THAT(error_of([](RankLedger& l) { l.waits.at(0).exchange = 6; }), HasSubstr("index"));
  EXPECT_THAT(error_of([](RankLedger& l) { l.spans[0].name = 7; }), HasSubstr("index"));
  EXPECT_THAT(error_of([](RankLedger& l) { l.spans[0].part = static_cast<Part>(6); }), HasSubstr("part"));
  EXPECT_THAT(error_of([](RankLedger& l) { l.steps[0].end_ns = l.steps[0].start_ns - 1; }), HasSubstr("interval"));
  EXPECT_THAT(error_of([](RankLedger& l) { l.steps[0].part_ns[0] = -1; }), HasSubstr("duration"));
  EXPECT_THAT(error_of([](RankLedger& l) { l.exchanges[1].logical_bytes = INT64_MAX; }), HasSubstr("size"));
  EXPECT_THAT(error_of([](RankLedger& l) { l.flows[0].bytes = -1; }), HasSubstr("size"));
  EXPECT_THAT(error_of([](RankLedger& l) { l.flops = -1; }), HasSubstr("finite"));
  EXPECT_THAT(error_of([](RankLedger& l) { l.clock_offset_ns = INT64_MIN; }), HasSubstr("time"));
  EXPECT_EQ(error_of([](RankLedger&) {}), "accepted");
}

// Bytes changed at random are refused, or give a ledger that the whole report can be made of.
TEST(LedgerBytes, DamagedBytesNeverHurt) {
  const auto good = sample_ledger().to_bytes();
  const RandomStream random(7, 1);
  int accepted = 0;
  for (std::uint64_t i = 0; i < 3000; ++i) {
    auto bytes = good;
    for (std::uint64_t j = 0; j <= random.bits(4 * i) % 3; ++j) {
      const std::uint64_t bits = random.bits(1'000'000 + 8 * i + j);
      bytes[8 + bits % (bytes.size() - 8)] = static_cast<std::byte>(bits >> 56);
    }
    auto back = RankLedger::from_bytes(bytes);
    if (!back) continue;
    ++accepted;
    if (i % 8 != 0) continue;
    const Bill bill = sample::bill_of({*back, *back});
    EXPECT_EQ(to_json(bill).find("nan"), std::string::npos);
    EXPECT_FALSE(to_text(bill).empty());
    EXPECT_FALSE(to_chrome_trace({*back}).empty());
  }
  EXPECT_GT(accepted, 0);
}

}  // namespace
}  // namespace moetax
