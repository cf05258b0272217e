// Calls beside the rank's work: their order, and what the observer hears of them.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "moetax/base/clock.h"
#include "moetax/exchange/exchange_queue.h"

namespace moetax::test {
namespace {

void sleep_ms(int ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

class Heard final : public Observer {
 public:
  void enter(Part part, const char*) override { open.push_back({part, now_ns()}); }
  void leave() override {
    in_part[static_cast<std::size_t>(open.back().first)] += now_ns() - open.back().second;
    open.pop_back();
  }
  void waited(const WaitRecord& wait) override { waits.push_back(wait); }
  void exchanged(const ExchangeRecord& exchange) override { exchanges.push_back(exchange); }
  double ms(Part part) const { return static_cast<double>(in_part[static_cast<std::size_t>(part)]) * 1e-6; }

  std::vector<std::pair<Part, std::int64_t>> open;
  std::array<std::int64_t, kNumParts> in_part{};
  std::vector<WaitRecord> waits;
  std::vector<ExchangeRecord> exchanges;
};

// A call of an exchange: waits for a peer, then moves rows.
struct Fake {
  Observer* observer;
  std::uint64_t number;
  int wait_ms, wire_ms;
  Result<void> operator()() const {
    ExchangeRecord record;
    record.number = number;
    const Span launch(observer, Part::kLaunch, "dispatch");
    record.start_ns = now_ns();
    {
      const Span span(observer, Part::kWait, "wait");
      sleep_ms(wait_ms);
    }
    observer->waited({1, record.start_ns, now_ns(), 0});
    {
      const Span span(observer, Part::kWire, "wire");
      sleep_ms(wire_ms);
    }
    record.end_ns = now_ns();
    observer->exchanged(record);
    return {};
  }
};

TEST(ExchangeQueue, MakesCallsInTheirOrder) {
  ExchangeQueue queue(nullptr);
  std::vector<int> made;
  const auto first = [&]() -> Result<void> {
    sleep_ms(5);
    made.push_back(1);
    return {};
  };
  const auto second = [&]() -> Result<void> {
    made.push_back(2);
    return {};
  };
  for (int round = 0; round < 3; ++round) {
    made.clear();
    const auto one = queue.submit(first), two = queue.submit(second);
    EXPECT_EQ(two, one + 1);
    EXPECT_TRUE(queue.wait(two));
    EXPECT_TRUE(queue.wait(one));
    EXPECT_EQ(made, (std::vector<int>{1, 2}));
  }
}

TEST(ExchangeQueue, WhatIsWaitedForIsExposedWhereTheCallIs) {
  Heard heard;
  ExchangeQueue queue(&heard);
  const Fake call{&queue, 7, 30, 40};
  ASSERT_TRUE(queue.wait(queue.submit(call)));
  ASSERT_EQ(heard.exchanges.size(), 1u);
  EXPECT_EQ(heard.exchanges[0].number, 7u);
  EXPECT_LT(heard.exchanges[0].hidden_ns, 35'000'000);  // none of 70 ms, but for what a busy machine does to it
  EXPECT_GT(heard.ms(Part::kWait), 10);
  EXPECT_GT(heard.ms(Part::kWire), 20);
  ASSERT_EQ(heard.waits.size(), 1u);
  EXPECT_TRUE(heard.open.empty());
}

TEST(ExchangeQueue, WhatRanBesideOtherWorkIsHidden) {
  Heard heard;
  ExchangeQueue queue(&heard);
  const Fake call{&queue, 1, 20, 180};
  const std::int64_t begin = now_ns();
  const auto ticket = queue.submit(call);
  sleep_ms(100);  // work, longer than the wait for the peer
  const double work_ms = static_cast<double>(now_ns() - begin) * 1e-6;
  ASSERT_TRUE(queue.wait(ticket));
  ASSERT_EQ(heard.exchanges.size(), 1u);
  const ExchangeRecord& call_record = heard.exchanges[0];
  const double hidden_ms = static_cast<double>(call_record.hidden_ns) * 1e-6;
  const double all_ms = static_cast<double>(call_record.end_ns - call_record.start_ns) * 1e-6;
  EXPECT_LE(hidden_ms, work_ms + 5);
  EXPECT_GT(hidden_ms, work_ms / 3);
  EXPECT_TRUE(heard.waits.empty());
  EXPECT_EQ(heard.ms(Part::kWait), 0);
  EXPECT_NEAR(heard.ms(Part::kWire) + hidden_ms, all_ms, 20);  // what is not hidden is exposed where the call was
}

TEST(ExchangeQueue, AfterAnErrorNoCallIsMade) {
  ExchangeQueue queue(nullptr);
  bool made = false;
  const auto fails = []() -> Result<void> { return fail(ErrorCode::kPeerFailed, "rank 3 is gone", 3); };
  const auto later = [&]() -> Result<void> {
    made = true;
    return {};
  };
  queue.submit(fails);
  const auto ticket = queue.submit(later);
  const Result<void> result = queue.wait(ticket);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message, "rank 3 is gone");
  EXPECT_EQ(result.error().rank, 3);
  EXPECT_FALSE(made);
}

TEST(ExchangeQueue, EndsWhenAllIsDone) {
  bool made = false;
  const auto call = [&]() -> Result<void> {
    sleep_ms(10);
    made = true;
    return {};
  };
  {
    ExchangeQueue queue(nullptr);
    queue.submit(call);
  }
  EXPECT_TRUE(made);
}

}  // namespace
}  // namespace moetax::test
