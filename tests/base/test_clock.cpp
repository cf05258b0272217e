// Orders of clock readings only: how long anything takes is the machine's business.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "moetax/base/clock.h"

namespace moetax {
namespace {

TEST(Clock, NeverRunsBackwards) {
  std::int64_t last = now_ns();
  for (int i = 0; i < 10'000; ++i) {
    const std::int64_t now = now_ns();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(Clock, SleepingTakesWallTimeButNoCpuTime) {
  const std::int64_t wall = now_ns(), cpu = thread_cpu_ns();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const std::int64_t wall_used = now_ns() - wall, cpu_used = thread_cpu_ns() - cpu;
  EXPECT_GE(wall_used, 20'000'000);
  EXPECT_LT(cpu_used, wall_used);
}

TEST(Deadline, PassesWhenItsTimeHasCome) {
  const Deadline far = Deadline::in_seconds(1000);
  EXPECT_FALSE(far.passed());
  EXPECT_EQ(far.seconds(), 1000);
  EXPECT_GT(far.at_ns(), now_ns() + 900'000'000'000);
  EXPECT_TRUE(Deadline::in_seconds(0).passed());
  EXPECT_TRUE(Deadline::in_seconds(-1).passed());
}

TEST(SpanUs, FromTheLastStartToTheLastEnd) {
  EXPECT_EQ(span_us({}), 0);
  const std::vector<Period> aligned{{0, 9000}, {5000, 8000}, {2000, 8500}};
  EXPECT_DOUBLE_EQ(span_us(aligned), 4);
  // A clock that is off can lead neither below the shortest period nor beyond the longest.
  const std::vector<Period> late{{0, 4000}, {900000, 903000}}, early{{0, 4000}, {-900000, -897000}};
  EXPECT_DOUBLE_EQ(span_us(late), 3);
  EXPECT_DOUBLE_EQ(span_us(early), 4);
}

}  // namespace
}  // namespace moetax
