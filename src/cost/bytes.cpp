#include "moetax/cost/bytes.h"

#include <cassert>

namespace moetax {
namespace {

// Probability that none of k distinct experts lies in a group of `size`: C(E - size, k) / C(E, k). As a product of
// factors below one it neither overflows nor cancels.
double miss_probability(int experts, int topk, int size) {
  if (experts - size < topk) return 0;
  double miss = 1;
  for (int i = 0; i < topk; ++i) miss *= static_cast<double>(experts - size - i) / (experts - i);
  return miss;
}

double share_elsewhere(int ranks) {
  return static_cast<double>(ranks - 1) / ranks;
}

}  // namespace

double expected_distinct_groups(int experts, int topk, int groups) {
  assert(topk > 0 && topk <= experts && groups > 0);
  const int small = experts / groups, larger_groups = experts % groups;
  return larger_groups * (1 - miss_probability(experts, topk, small + 1)) +
         (groups - larger_groups) * (1 - miss_probability(experts, topk, small));
}

double expected_dispatch_bytes(std::int64_t tokens, int experts, int topk, int ranks, double row_bytes) {
  return static_cast<double>(tokens) * expected_distinct_groups(experts, topk, ranks) * share_elsewhere(ranks) *
         row_bytes;
}

double expected_combine_bytes(std::int64_t tokens, int topk, int ranks, double row_bytes) {
  return static_cast<double>(tokens) * topk * share_elsewhere(ranks) * row_bytes;
}

}  // namespace moetax
