// Byte counts of the exchanges by formula. The transport's counters must equal them; a test holds them together.
#pragma once

#include <cstdint>

#include "moetax/base/dtype.h"

namespace moetax {

// Expected number of distinct groups (ranks, nodes) a token's k distinct experts fall into when E experts are spread
// evenly over n groups and every k-subset is equally likely: n (1 - C(E - E/n, k) / C(E, k)).
double expected_distinct_groups(int experts, int topk, int groups);

// Expected dispatch bytes that leave a rank with T tokens under balanced routing: T (n-1)/n-th of the distinct
// destination ranks' rows of `row_bytes`.
double expected_dispatch_bytes(std::int64_t tokens, int experts, int topk, int ranks, double row_bytes);

// Expected combine bytes that come to a rank: one row per (token, expert) on another rank.
double expected_combine_bytes(std::int64_t tokens, int topk, int ranks, double row_bytes);

}  // namespace moetax
