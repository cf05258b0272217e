// Intervals against sets of single instants.
#include <gtest/gtest.h>

#include <bitset>

#include "analyze/intervals.h"
#include "moetax/base/random.h"

namespace moetax {
namespace {

using Instants = std::bitset<200>;

Instants instants(const std::vector<Interval>& intervals) {
  Instants set;
  for (const Interval& each : intervals) {
    for (std::int64_t at = each.begin; at < each.end; ++at) set.set(static_cast<std::size_t>(at));
  }
  return set;
}

std::vector<Interval> some(std::uint64_t stream) {
  const RandomStream random(7, stream);
  std::vector<Interval> intervals;
  for (std::uint64_t i = 0; i < random.bits(99) % 12; ++i) {
    const auto begin = static_cast<std::int64_t>(random.bits(2 * i) % 180);
    intervals.push_back({begin, begin + static_cast<std::int64_t>(random.bits(2 * i + 1) % 20)});
  }
  return intervals;
}

TEST(Intervals, AreSetsOfInstants) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    const auto a = some(2 * seed), b = some(2 * seed + 1);
    const Intervals ua = united(a), ub = united(b);
    EXPECT_EQ(instants(ua), instants(a)) << seed;
    EXPECT_EQ(total(ua), static_cast<std::int64_t>(instants(a).count())) << seed;
    EXPECT_EQ(instants(both(ua, ub)), instants(a) & instants(b)) << seed;
    EXPECT_EQ(instants(without(ua, ub)), instants(a) & ~instants(b)) << seed;
    EXPECT_EQ(total(both(ua, ub)) + total(without(ua, ub)), total(ua)) << seed;
  }
}

}  // namespace
}  // namespace moetax
