#include "cli/bench_tokens.h"

#include <cmath>
#include <cstring>

#include "moetax/base/parallel.h"
#include "moetax/base/random.h"

namespace moetax::cli {
namespace {

template <class Each>
void for_rows(std::int64_t rows, int threads, Each each) {
  parallel_for(rows, threads, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) each(t);
  });
}

}  // namespace

void fill_tokens(std::uint64_t seed, std::uint64_t stream, std::int64_t first_token, int threads, Rows rows) {
  const RandomStream random(seed, stream);
  for_rows(rows.rows, threads, [&](std::int64_t t) {
    const auto first = static_cast<std::uint64_t>((first_token + t) * rows.cols);
    for (std::int64_t j = 0; j < rows.cols; ++j) {
      set_element(rows, t, j, random.normal(first + static_cast<std::uint64_t>(j)));
    }
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

void add_and_normalise(ConstRows x, ConstRows y, int threads, Rows out, std::span<float> scale) {
  constexpr double kEpsilon = 1e-6;
  const auto sum = [&](std::int64_t t, std::int64_t j) { return element(x, t, j) + element(y, t, j); };
  for_rows(out.rows, threads, [&](std::int64_t t) {
    double squares = 0;
    for (std::int64_t j = 0; j < out.cols; ++j) squares += double{sum(t, j)} * sum(t, j);
    const auto inverse = static_cast<float>(1 / std::sqrt(squares / static_cast<double>(out.cols) + kEpsilon));
    for (std::int64_t j = 0; j < out.cols; ++j) set_element(out, t, j, sum(t, j) * inverse);
    scale[static_cast<std::size_t>(t)] = inverse;
  });
}

void add_and_normalise_backward(ConstRows out, std::span<const float> scale, MatrixView<const float> d_out,
                                ConstRows d_more, int threads, Rows d_s) {
  const auto d = [&](std::int64_t t, std::int64_t j) {
    return d_more.data ? d_out(t, j) + element(d_more, t, j) : d_out(t, j);
  };
  for_rows(d_s.rows, threads, [&](std::int64_t t) {
    double product = 0;
    for (std::int64_t j = 0; j < d_s.cols; ++j) product += double{d(t, j)} * element(out, t, j);
    const auto mean = static_cast<float>(product / static_cast<double>(d_s.cols));
    for (std::int64_t j = 0; j < d_s.cols; ++j) {
      set_element(d_s, t, j, scale[static_cast<std::size_t>(t)] * (d(t, j) - element(out, t, j) * mean));
    }
  });
}

}  // namespace moetax::cli
