#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <new>
#include <numeric>
#include <thread>

#include "moetax/base/clock.h"
#include "moetax/meter/ledger.h"

namespace {
std::atomic<std::int64_t> num_allocations{0};
}

// Counts allocations of this program, to hold the ledger to its promise.
[[gnu::noinline]] void* operator new(std::size_t size) {
  ++num_allocations;
  if (void* memory = std::malloc(size > 0 ? size : 1)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace moetax {
namespace {

// Work of at least so long; upper bounds follow from the sum being exact.
void spin_us(std::int64_t us) {
  const std::int64_t end = now_ns() + us * 1000;
  while (now_ns() < end) {
  }
}

std::int64_t sum(const PartTimes& parts) {
  return std::accumulate(parts.begin(), parts.end(), std::int64_t{0});
}

std::int64_t at(const PartTimes& parts, Part part) {
  return parts[static_cast<std::size_t>(part)];
}

ExchangeRecord exchange_now(std::int64_t start_ns, std::uint64_t number) {
  ExchangeRecord record;
  record.name = "dispatch";
  record.phase = "forward";
  record.family = "all-to-all";
  record.number = number;
  record.start_ns = start_ns;
  record.end_ns = now_ns();
  return record;
}

// One exchange as the exchange room reports it: launch around pack, an idle wait, wire.
void one_exchange(Ledger& ledger, std::uint64_t number) {
  const std::int64_t start = now_ns();
  Span launch(&ledger, Part::kLaunch, "dispatch");
  {
    Span pack(&ledger, Part::kPack, "pack");
    spin_us(50);
  }
  {
    const std::int64_t wait_start = now_ns();
    Span wait(&ledger, Part::kWait, "wait");
    spin_us(60);
    ledger.waited({1, wait_start, now_ns(), 7});
  }
  {
    Span wire(&ledger, Part::kWire, "wire");
    spin_us(70);
  }
  ledger.exchanged(exchange_now(start, number));
}

TEST(Ledger, PartsAreExclusiveAndAddUpExactly) {
  Ledger ledger(0, 4, 4, 100);
  for (int step = 0; step < 4; ++step) {
    ledger.begin_step();
    {
      Span compute(&ledger, Part::kCompute, "experts");
      spin_us(100);
      Span pack(&ledger, Part::kPack, "inner pack");
      spin_us(200);
    }
    one_exchange(ledger, static_cast<std::uint64_t>(step));
    spin_us(30);
    ledger.end_step();
  }
  const RankLedger& record = ledger.record();
  ASSERT_EQ(record.steps.size(), 4u);
  for (const StepRecord& step : record.steps) {
    EXPECT_EQ(sum(step.part_ns), step.end_ns - step.start_ns);
    EXPECT_GE(at(step.part_ns, Part::kCompute), 100'000);
    EXPECT_GE(at(step.part_ns, Part::kPack), 250'000);
    EXPECT_GE(at(step.part_ns, Part::kWait), 60'000);
    EXPECT_GE(at(step.part_ns, Part::kWire), 70'000);
    EXPECT_GE(at(step.part_ns, Part::kOther), 30'000);
    EXPECT_GT(at(step.part_ns, Part::kLaunch), 0);
  }
  EXPECT_EQ(record.records_dropped, 0);
}

TEST(Ledger, ApproachIsWhatLiesBetweenExchanges) {
  Ledger ledger(0, 1, 4, 100);
  ledger.begin_step();
  {
    Span compute(&ledger, Part::kCompute, "router");
    spin_us(300);
  }
  {  // exchange parts that belong to no exchange
    Span pack(&ledger, Part::kPack, "convert");
    spin_us(40);
  }
  {
    Span compute(&ledger, Part::kCompute, "more");
    spin_us(20);
  }
  one_exchange(ledger, 1);
  one_exchange(ledger, 2);
  ledger.end_step();

  const RankLedger& record = ledger.record();
  ASSERT_EQ(record.exchanges.size(), 2u);
  const LedgerExchange& first = record.exchanges[0];
  EXPECT_EQ(first.approach.start_ns, record.steps[0].start_ns);
  EXPECT_GE(at(first.approach.part_ns, Part::kCompute), 320'000);
  EXPECT_GE(at(first.approach.part_ns, Part::kPack), 40'000);
  EXPECT_EQ(at(first.approach.part_ns, Part::kWait), 0);
  EXPECT_EQ(at(first.approach.part_ns, Part::kWire), 0);
  EXPECT_EQ(at(first.part_ns, Part::kCompute), 0);
  EXPECT_GE(at(first.part_ns, Part::kPack), 50'000);
  EXPECT_GE(at(first.part_ns, Part::kWait), 60'000);
  EXPECT_EQ(first.off_cpu_ns, 7);
  const LedgerExchange& second = record.exchanges[1];
  EXPECT_EQ(at(second.approach.part_ns, Part::kCompute), 0);
  EXPECT_GT(second.approach.start_ns, first.start_ns);
  ASSERT_EQ(record.waits.size(), 2u);
  EXPECT_EQ(record.waits[0].exchange, 0);
  EXPECT_EQ(record.waits[1].exchange, 1);
  EXPECT_EQ(record.waits[0].peer, 1);
  // Approaches and exchanges tile the step up to what follows the last exchange.
  std::int64_t tiled = 0;
  for (const LedgerExchange& x : record.exchanges) tiled += sum(x.approach.part_ns) + sum(x.part_ns);
  EXPECT_LE(tiled, record.steps[0].end_ns - record.steps[0].start_ns);
  EXPECT_GE(tiled, second.end_ns - record.steps[0].start_ns);
}

TEST(Ledger, SleepIsOffTheCpuUnlessPlanted) {
  using std::chrono::milliseconds;
  Ledger ledger(0, 1, 4, 100);
  ledger.begin_step();
  {
    Span delay(&ledger, Part::kOther, kPlantedDelay);
    std::this_thread::sleep_for(milliseconds(20));
  }
  {
    Span compute(&ledger, Part::kCompute, "experts");
    std::this_thread::sleep_for(milliseconds(10));
  }
  one_exchange(ledger, 1);
  ledger.end_step();
  const Approach& approach = ledger.record().exchanges.at(0).approach;
  EXPECT_GE(approach.planted_ns, 20'000'000);
  EXPECT_LE(approach.planted_ns, at(approach.part_ns, Part::kOther));
  EXPECT_GE(approach.off_cpu_ns, 9'000'000);
  EXPECT_LE(approach.off_cpu_ns, sum(approach.part_ns) - approach.planted_ns);
}

TEST(Ledger, FlowsAddUpByPeerWithinSteps) {
  Ledger ledger(0, 2, 2, 5);
  ledger.flowed({3, 1000, 0, 10});
  ledger.begin_step();
  ledger.flowed({3, 100, 5, 15});
  ledger.flowed({1, 7, 5, 6});
  ledger.flowed({3, 200, 20, 50});
  ledger.end_step();
  const std::vector<LedgerFlow>& flows = ledger.record().flows;
  ASSERT_EQ(flows.size(), 2u);
  EXPECT_EQ(flows[0].peer, 3);
  EXPECT_EQ(flows[0].bytes, 300);
  EXPECT_EQ(flows[0].ns, 40);
  EXPECT_EQ(flows[1].bytes, 7);
}

TEST(Ledger, NothingIsAllocatedWithinAStep) {
  Ledger ledger(0, 3, 2, 5);  // too few for what follows: drops must not allocate either
  for (int step = 0; step < 4; ++step) {
    const std::int64_t before = num_allocations;
    ledger.begin_step();
    {
      Span compute(&ledger, Part::kCompute, "a name that is longer than any small string buffer would hold");
      Span nested(&ledger, Part::kPack, "another");
    }
    for (std::uint64_t number = 0; number < 3; ++number) one_exchange(ledger, number);
    const std::int64_t after = num_allocations;
    ledger.end_step();
    EXPECT_EQ(after - before, 0);
  }
  RankLedger& record = ledger.record();
  EXPECT_EQ(record.steps.size(), 3u);
  EXPECT_EQ(record.exchanges.size(), 6u);
  EXPECT_EQ(record.spans.size(), 5u);
  EXPECT_EQ(record.spans_dropped, 3 * (2 + 3 * 4) - 5);
  EXPECT_EQ(record.records_dropped, 3 * 1 + 1);  // an exchange a step, and the fourth step
  EXPECT_EQ(record.names.at(static_cast<std::size_t>(record.spans[1].name)),
            "a name that is longer than any small string buffer would hold");
}

TEST(Ledger, ManyWaitsOfOneExchangeAreAddedUp) {
  Ledger ledger(0, 1, 2, 10);
  ledger.begin_step();
  const std::int64_t start = now_ns();
  for (std::int64_t i = 0; i < 100; ++i) {  // for each of three peers in turn, in a chunk of its own
    Span pack(&ledger, Part::kPack, "chunk");
    ledger.waited({static_cast<Rank>(i % 3), 10 * i, 10 * i + 5, 1});
  }
  ledger.exchanged(exchange_now(start, 1));
  ledger.end_step();
  const RankLedger& record = ledger.record();
  std::array<std::int64_t, 3> idle{};
  for (const LedgerWait& wait : record.waits) idle[static_cast<std::size_t>(wait.peer)] += wait.idle_ns;
  EXPECT_EQ(idle, (std::array<std::int64_t, 3>{34 * 5, 33 * 5, 33 * 5}));
  EXPECT_EQ(record.waits.size(), 8u);
  EXPECT_EQ(record.exchanges.at(0).off_cpu_ns, 100);
  EXPECT_EQ(record.records_dropped, 0);
  // All chunks lie within the exchange, however many: its arrival is the first.
  EXPECT_EQ(at(record.exchanges[0].approach.part_ns, Part::kPack), 0);
}

TEST(Ledger, OutsideStepsEverythingIsIgnored) {
  Ledger ledger(0, 2, 2, 10);
  one_exchange(ledger, 1);
  ledger.end_step();
  EXPECT_TRUE(ledger.record().steps.empty());
  EXPECT_TRUE(ledger.record().exchanges.empty());
  EXPECT_TRUE(ledger.record().waits.empty());
  ledger.begin_step();
  ledger.leave();  // of a span from before the step
  ledger.enter(Part::kCompute, "left open by an error");
  spin_us(20);
  ledger.end_step();
  ledger.leave();
  const StepRecord& step = ledger.record().steps.at(0);
  EXPECT_EQ(sum(step.part_ns), step.end_ns - step.start_ns);
  EXPECT_EQ(ledger.record().spans.size(), 1u);
}

TEST(Ledger, SpansNestedTooDeepAreChargedToTheOneTheyLieIn) {
  Ledger ledger(0, 1, 1, 1000);
  ledger.begin_step();
  for (int i = 0; i < 100; ++i) ledger.enter(Part::kCompute, "deep");
  ledger.enter(Part::kPack, "deeper");
  spin_us(50);
  for (int i = 0; i < 101; ++i) ledger.leave();
  ledger.end_step();
  const StepRecord& step = ledger.record().steps.at(0);
  EXPECT_GE(at(step.part_ns, Part::kCompute), 50'000);
  EXPECT_EQ(at(step.part_ns, Part::kPack), 0);
  EXPECT_EQ(sum(step.part_ns), step.end_ns - step.start_ns);
}

}  // namespace
}  // namespace moetax
