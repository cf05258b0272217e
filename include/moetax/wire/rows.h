// Row kernels: copy a token's row to the places that need it, and sum the rows that come back.
//
// Each call works on one row (or on the K rows of one token) and runs on the caller's thread; the instruction set is
// chosen at run time. Rows may have any length and alignment. Products and sums are separate fp32 roundings, never
// fused, in the order given: the bits depend neither on the instruction set nor on who calls how often.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "moetax/base/dtype.h"

namespace moetax {

// How rows are written. Streaming stores go around the cache: they spare the read of the destination that a normal
// store begins with, and pay off where the rows would be evicted before anyone reads them. A destination whose address
// is not a multiple of 64 bytes is written with normal stores whatever is asked for.
enum class Store : std::uint8_t { kCached, kStreaming };

// Copies `bytes` from `from` to every destination; the source is read once. `next` (may be null) is a row of the same
// size that the caller will need soon: it is prefetched along the way.
void copy_row(const std::byte* from, std::size_t bytes, std::span<std::byte* const> to, Store store,
              const std::byte* next = nullptr);

// The rows of one sum, in the order they are added, `cols` elements each.
struct RowTerms {
  std::span<const std::byte* const> rows;  // at least one
  std::span<const std::byte* const> next;  // rows of the same size that will be needed soon, prefetched along the way
  std::int64_t cols = 0;
  std::uint64_t wide = 0;  // bit k: rows[k] is fp32, whatever the others are
};

// out [cols] = (weight[0] * rows[0] + weight[1] * rows[1] + ...) + addend, accumulated in fp32, rounded to `dtype`
// once. rows that are not wide, addend (may be null) and out are of `dtype`; out may be addend, but must not overlap
// any other row.
void weighted_sum_row(DType dtype, const RowTerms& terms, std::span<const float> weight, const std::byte* addend,
                      std::byte* out, Store store);

// out [cols] fp32 = weight[0] * rows[0] + weight[1] * rows[1] + ...; all ones where `weight` is empty.
void sum_row(DType dtype, const RowTerms& terms, std::span<const float> weight, float* out, Store store);

// To be called by a thread that used Store::kStreaming before it tells anyone else that the rows are there: streaming
// stores are not ordered by a release store.
void finish_streaming();

}  // namespace moetax
