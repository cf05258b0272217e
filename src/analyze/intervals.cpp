#include "analyze/intervals.h"

#include <algorithm>

namespace moetax {

Intervals united(std::vector<Interval> any) {
  std::sort(any.begin(), any.end(), [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  Intervals set;
  for (const Interval& each : any) {
    if (each.end <= each.begin) continue;
    if (!set.empty() && each.begin <= set.back().end) {
      set.back().end = std::max(set.back().end, each.end);
    } else {
      set.push_back(each);
    }
  }
  return set;
}

Intervals both(const Intervals& a, const Intervals& b) {
  Intervals set;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const std::int64_t begin = std::max(a[i].begin, b[j].begin), end = std::min(a[i].end, b[j].end);
    if (begin < end) set.push_back({begin, end});
    a[i].end < b[j].end ? ++i : ++j;
  }
  return set;
}

Intervals without(const Intervals& a, const Intervals& b) {
  Intervals set;
  std::size_t j = 0;
  for (Interval rest : a) {
    while (j < b.size() && b[j].end <= rest.begin) ++j;
    for (std::size_t k = j; k < b.size() && b[k].begin < rest.end; ++k) {
      if (b[k].begin > rest.begin) set.push_back({rest.begin, b[k].begin});
      rest.begin = std::max(rest.begin, b[k].end);
    }
    if (rest.begin < rest.end) set.push_back(rest);
  }
  return set;
}

std::int64_t total(const Intervals& set) {
  std::int64_t sum = 0;
  for (const Interval& each : set) sum += each.end - each.begin;
  return sum;
}

}  // namespace moetax
