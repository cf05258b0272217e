// Medians.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace moetax {

// The upper of the two in the middle where their number is even. `values` is not empty.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// A value and how often it occurs, 0 or more times.
struct Weighted {
  double value = 0;
  double weight = 0;
};

// The median of all occurrences, of which there is at least one.
inline double median(std::vector<Weighted> values) {
  std::sort(values.begin(), values.end(), [](const Weighted& a, const Weighted& b) { return a.value < b.value; });
  double all = 0, below = 0;
  for (const Weighted& one : values) all += one.weight;
  for (const Weighted& one : values) {
    below += one.weight;
    if (2 * below > all) return one.value;
  }
  return values.back().value;
}

}  // namespace moetax
