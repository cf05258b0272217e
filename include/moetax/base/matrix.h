// Views of matrices that somebody else owns. A view is two pointers' worth of copy; it never frees.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>

#include "moetax/base/dtype.h"

namespace moetax {

// Row-major [rows, cols] of T; consecutive rows are `stride` elements apart.
template <class T>
struct MatrixView {
  T* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;

  MatrixView() = default;
  MatrixView(T* d, std::int64_t r, std::int64_t c) : data(d), rows(r), cols(c), stride(c) {}
  MatrixView(T* d, std::int64_t r, std::int64_t c, std::int64_t s) : data(d), rows(r), cols(c), stride(s) {}
  operator MatrixView<const T>() const { return {data, rows, cols, stride}; }

  T* row(std::int64_t i) const {
    assert(i >= 0 && i < rows);
    return data + i * stride;
  }
  T& operator()(std::int64_t i, std::int64_t j) const {
    assert(j >= 0 && j < cols);
    return row(i)[j];
  }
  std::span<T> row_span(std::int64_t i) const { return {row(i), static_cast<std::size_t>(cols)}; }
};

// Rows of a dtype known at run time, dense: row i starts at data + i * row_bytes().
template <class Byte>
struct BasicRows {
  Byte* data = nullptr;
  DType dtype = DType::kBf16;
  std::int64_t rows = 0;
  std::int64_t cols = 0;

  std::size_t row_bytes() const { return static_cast<std::size_t>(cols) * size_of(dtype); }
  std::size_t bytes() const { return static_cast<std::size_t>(rows) * row_bytes(); }
  Byte* row(std::int64_t i) const { return data + static_cast<std::size_t>(i) * row_bytes(); }
  BasicRows slice(std::int64_t first, std::int64_t count) const { return {row(first), dtype, count, cols}; }
  operator BasicRows<const Byte>() const { return {data, dtype, rows, cols}; }
};
using Rows = BasicRows<std::byte>;
using ConstRows = BasicRows<const std::byte>;

// One element of a row of either dtype, as float. For reference code and tests; kernels work on whole rows.
inline float element(ConstRows rows, std::int64_t i, std::int64_t j) {
  const std::byte* at = rows.row(i) + static_cast<std::size_t>(j) * size_of(rows.dtype);
  if (rows.dtype == DType::kFp32) {
    float value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  Bf16 value;
  std::memcpy(&value, at, sizeof value);
  return to_float(value);
}

inline void set_element(Rows rows, std::int64_t i, std::int64_t j, float value) {
  std::byte* at = rows.row(i) + static_cast<std::size_t>(j) * size_of(rows.dtype);
  if (rows.dtype == DType::kFp32) {
    std::memcpy(at, &value, sizeof value);
    return;
  }
  const Bf16 rounded = to_bf16(value);
  std::memcpy(at, &rounded, sizeof rounded);
}

}  // namespace moetax
