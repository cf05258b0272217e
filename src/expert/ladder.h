// The fixed sizes that row counts are rounded up to. Routing makes a new row count for nearly every expert of every
// step, and the GEMM library spends some 200 us and 175 allocations on a size it has not seen: so every size it will
// ever see is one of these, and all are built at the start.
#pragma once

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstdint>

namespace moetax {

// Every size up to 16, then eight sizes per doubling: 18, 20, ... 32, 36, ... 64, 72, ... At most 1/8 is padding.
constexpr std::int64_t rung_size(int rung) {
  if (rung < 16) return rung + 1;
  const int doubling = (rung - 16) / 8, step = (rung - 16) % 8 + 1;
  return (std::int64_t{8} + step) << (doubling + 1);
}

// The smallest rung that holds `count` >= 1.
constexpr int rung_of(std::int64_t count) {
  assert(count >= 1);
  if (count <= 16) return static_cast<int>(count) - 1;
  const int shift = std::bit_width(static_cast<std::uint64_t>(count - 1)) - 4;
  const std::int64_t eighths = ((count - 1) >> shift) + 1;  // 9 .. 16, in steps of 2^shift
  return 16 + 8 * (shift - 1) + static_cast<int>(eighths) - 9;
}

constexpr std::int64_t round_up_to_rung(std::int64_t count) {
  return rung_size(rung_of(count));
}

// Rows of one GEMM call. Larger tiles gain nothing on the machines measured (256 rows run at 99 % of the rate of 4096)
// and smaller ones lose (64: 91 %); the intermediates of 256 rows stay in the cache.
inline constexpr std::int64_t kMaxTileRows = 256;

// `rows` rows as equal tiles (but for rounding) of at most `max_rows`: 384 rows are 2 x 192, not 256 + 128.
class Tiles {
 public:
  constexpr Tiles(std::int64_t rows, std::int64_t max_rows) : rows_(rows), count_((rows + max_rows - 1) / max_rows) {}
  constexpr std::int64_t count() const { return count_; }
  constexpr std::int64_t begin(std::int64_t tile) const { return rows_ * tile / count_; }
  constexpr std::int64_t size(std::int64_t tile) const { return begin(tile + 1) - begin(tile); }

 private:
  std::int64_t rows_, count_;
};

}  // namespace moetax
