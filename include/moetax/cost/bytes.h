// Byte counts of the exchanges by formula. The transport's counters must equal them on average; a test holds them
// together. T tokens per rank, E experts in contiguous blocks over the ranks, k distinct experts per token, every
// k-subset equally likely (a balanced router).
#pragma once

#include <cstdint>

namespace moetax {

// Expected number of distinct groups (ranks, nodes) that a token's experts fall into: the sum over groups g of
// 1 - C(E - E_g, k) / C(E, k). With equal groups n (1 - C(E - E/n, k) / C(E, k)); where n does not divide E, the first
// E % n groups hold one expert more. 1 <= topk <= experts, groups >= 1 (more groups than experts: the rest are empty).
double expected_distinct_groups(int experts, int topk, int groups);

// Expected dispatch bytes that leave a rank with `tokens` tokens, averaged over the ranks: a row goes once to each
// distinct destination rank, and (n-1)/n of those are other ranks. Times n/(n-1): the logical bytes, own rank included.
double expected_dispatch_bytes(std::int64_t tokens, int experts, int topk, int ranks, double row_bytes);

// Expected combine bytes that come to a rank: one row per (token, expert) on another rank.
double expected_combine_bytes(std::int64_t tokens, int topk, int ranks, double row_bytes);

}  // namespace moetax
