// The exchange that moetax, plain copies and MPI are timed on. Both programs include this and so do the same work.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "moetax/base/memory.h"
#include "moetax/base/random.h"
#include "moetax/route/load_file.h"

namespace moetax::bench {

inline constexpr int kRanks = 2, kExperts = 64, kTopK = 6;
inline constexpr std::int64_t kHidden = 2048;
inline constexpr std::size_t kRowBytes = kHidden * 2;  // bf16

// Uniform random routing of this rank's tokens.
inline RoutingTable uniform_routing(Rank rank, std::int64_t tokens) {
  RoutingTable table;
  sample_routing(std::vector<double>(kExperts, 1.0), kTopK, 1, rank * tokens, tokens, table);
  return table;
}

// Writes fresh numbers, as the layer before the exchange would: the rows are then in the writer's cache, if they fit,
// and in nobody else's.
inline void refresh(std::byte* rows, std::size_t bytes, std::uint16_t salt) {
  auto* values = reinterpret_cast<std::uint16_t*>(rows);
  for (std::size_t i = 0; i < bytes / 2; ++i) {
    values[i] = static_cast<std::uint16_t>(0x3f00 | ((i + salt) & 0x7f));  // bf16 in [0.5, 1)
  }
}

// What the experts do for this benchmark: they read every row and write every result.
inline void run_experts(const std::byte* rows, std::byte* results, std::size_t bytes) {
  const auto* from = reinterpret_cast<const std::uint16_t*>(rows);
  auto* to = reinterpret_cast<std::uint16_t*>(results);
  for (std::size_t i = 0; i < bytes / 2; ++i) to[i] = from[i] ^ 1;
}

inline double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// How often to repeat inside one run: about the same time for few tokens and for many.
inline int repeats(std::int64_t tokens) {
  return tokens <= 64 ? 2000 : tokens <= 1024 ? 100 : 7;
}

}  // namespace moetax::bench
