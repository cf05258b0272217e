#include "cli/bench_tokens.h"

#include <cstring>

#include "moetax/base/parallel.h"
#include "moetax/base/random.h"

namespace moetax::cli {
namespace {

// Calls each(t, j) for every element, rows shared out over the threads.
template <class Each>
void for_elements(std::int64_t rows, std::int64_t cols, int threads, Each each) {
  parallel_for(rows, threads, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      for (std::int64_t j = 0; j < cols; ++j) each(t, j);
    }
  });
}

}  // namespace

void fill_tokens(std::uint64_t seed, std::uint64_t stream, std::int64_t first_token, int threads, Rows rows) {
  const RandomStream random(seed, stream);
  for_elements(rows.rows, rows.cols, threads, [&](std::int64_t t, std::int64_t j) {
    set_element(rows, t, j, random.normal(static_cast<std::uint64_t>((first_token + t) * rows.cols + j)));
  });
}

std::uint64_t hash_rows(std::int64_t first_token, ConstRows rows) {
  std::uint64_t sum = 0;
  for (std::int64_t t = 0; t < rows.rows; ++t) {
    std::uint64_t row = mix64(static_cast<std::uint64_t>(first_token + t) + 1);
    const std::byte* at = rows.row(t);
    const std::size_t bytes = rows.row_bytes();
    for (std::size_t i = 0; i < bytes; i += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, at + i, std::min<std::size_t>(8, bytes - i));
      row = mix64(row ^ word) + 0x9e3779b97f4a7c15ull;
    }
    sum += row;
  }
  return sum;
}

void add_residual(ConstRows from, int threads, Rows to) {
  for_elements(to.rows, to.cols, threads,
               [&](std::int64_t t, std::int64_t j) { set_element(to, t, j, element(to, t, j) + element(from, t, j)); });
}

void round_sum(MatrixView<const float> a, ConstRows b, int threads, Rows to) {
  for_elements(to.rows, to.cols, threads, [&](std::int64_t t, std::int64_t j) {
    set_element(to, t, j, b.data ? a(t, j) + element(b, t, j) : a(t, j));
  });
}

}  // namespace moetax::cli
