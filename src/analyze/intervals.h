// Sets of instants as intervals.
#pragma once

#include <cstdint>
#include <vector>

namespace moetax {

struct Interval {
  std::int64_t begin = 0, end = 0;  // end >= begin
};

// Sorted, without overlaps or empty ones.
using Intervals = std::vector<Interval>;

Intervals united(std::vector<Interval> any);  // in any order
Intervals both(const Intervals& a, const Intervals& b);
Intervals without(const Intervals& a, const Intervals& b);
std::int64_t total(const Intervals& set);

}  // namespace moetax
