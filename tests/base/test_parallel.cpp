#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "moetax/base/parallel.h"

namespace moetax {
namespace {

using Range = std::pair<std::int64_t, std::int64_t>;

std::vector<Range> ranges_of(std::int64_t count, int threads, std::int64_t grain) {
  std::mutex mutex;
  std::vector<Range> ranges;
  parallel_for(count, threads, grain, [&](std::int64_t begin, std::int64_t end) {
    const std::lock_guard lock(mutex);
    ranges.emplace_back(begin, end);
  });
  std::sort(ranges.begin(), ranges.end());
  return ranges;
}

TEST(ParallelFor, RangesCoverEveryIndexOnceInMultiplesOfTheGrain) {
  for (const std::int64_t count : {1, 2, 7, 64, 1000}) {
    for (const int threads : {1, 2, 3, 8, 33}) {
      for (const std::int64_t grain : {1, 4, 16, 5000}) {
        std::int64_t next = 0;
        for (const auto& [begin, end] : ranges_of(count, threads, grain)) {
          ASSERT_EQ(begin, next);
          ASSERT_LT(begin, end);
          ASSERT_TRUE((end - begin) % grain == 0 || end == count);
          next = end;
        }
        ASSERT_EQ(next, count) << threads << " threads, grain " << grain;
      }
    }
  }
}

TEST(ParallelFor, RangesAreTheSameEveryTime) {
  for (int repeat = 0; repeat < 20; ++repeat) EXPECT_EQ(ranges_of(1000, 7, 8), ranges_of(1000, 7, 8));
}

TEST(ParallelFor, NoMoreRangesThanThreadsAndOfEvenSize) {
  const auto ranges = ranges_of(1000, 4, 1);
  ASSERT_EQ(ranges.size(), 4u);
  for (const auto& [begin, end] : ranges) EXPECT_EQ(end - begin, 250);
}

TEST(ParallelFor, NothingToDoCallsNothing) {
  EXPECT_TRUE(ranges_of(0, 4, 1).empty());
  EXPECT_TRUE(ranges_of(-3, 4, 1).empty());
}

TEST(ParallelFor, OneThreadOrOneGrainStaysOnTheCaller) {
  const auto caller = std::this_thread::get_id();
  for (const auto& [threads, grain] : {std::pair<int, std::int64_t>{1, 1}, {4, 100}}) {
    parallel_for(100, threads, grain, [&](std::int64_t begin, std::int64_t end) {
      EXPECT_EQ(std::this_thread::get_id(), caller);
      EXPECT_EQ(begin, 0);
      EXPECT_EQ(end, 100);
    });
  }
}

// Inside another team the runtime grants one thread only; every range must be worked on all the same.
TEST(ParallelFor, CoversEverythingWhenNested) {
  std::vector<int> touched(64, 0);
  parallel_for(8, 2, 1, [&](std::int64_t outer_begin, std::int64_t outer_end) {
    for (std::int64_t outer = outer_begin; outer < outer_end; ++outer) {
      parallel_for(8, 4, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) ++touched[static_cast<std::size_t>(outer * 8 + i)];
      });
    }
  });
  EXPECT_EQ(touched, std::vector<int>(64, 1));
}

}  // namespace
}  // namespace moetax
