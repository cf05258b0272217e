#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <vector>

#include "moetax/base/matrix.h"

namespace moetax {
namespace {

TEST(MatrixView, IndexesRowMajorWithAStride) {
  std::array<int, 12> data;
  std::iota(data.begin(), data.end(), 0);
  const MatrixView<int> dense(data.data(), 3, 4);
  EXPECT_EQ(dense(2, 3), 11);
  const MatrixView<int> left(data.data(), 3, 2, 4);
  EXPECT_EQ(left(1, 1), 5);
  EXPECT_EQ(left.row_span(2).size(), 2u);
  EXPECT_EQ(left.row_span(2)[0], 8);
}

TEST(MatrixView, WritesGoToTheOwnerAndConstViewsSeeThem) {
  std::array<int, 4> data{};
  const MatrixView<int> view(data.data(), 2, 2);
  view(1, 0) = 7;
  EXPECT_EQ(data[2], 7);
  const MatrixView<const int> read_only = view;
  EXPECT_EQ(read_only(1, 0), 7);
}

class RowsOfBothTypes : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DType, RowsOfBothTypes, testing::Values(DType::kBf16, DType::kFp32),
                         [](const auto& dtype) { return std::string(to_string(dtype.param)); });

TEST_P(RowsOfBothTypes, SizesFollowTheDtype) {
  std::vector<std::byte> memory(5 * 3 * 4);
  const Rows rows{memory.data(), GetParam(), 5, 3};
  EXPECT_EQ(rows.row_bytes(), 3 * size_of(GetParam()));
  EXPECT_EQ(rows.bytes(), 15 * size_of(GetParam()));
  EXPECT_EQ(rows.row(2), memory.data() + 2 * rows.row_bytes());
}

TEST_P(RowsOfBothTypes, ElementsReadBackAlsoThroughASlice) {
  std::vector<std::byte> memory(5 * 3 * 4);
  const Rows rows{memory.data(), GetParam(), 5, 3};
  for (std::int64_t i = 0; i < 5; ++i) {
    for (std::int64_t j = 0; j < 3; ++j) set_element(rows, i, j, static_cast<float>(10 * i + j));
  }
  const ConstRows slice = rows.slice(3, 2);
  EXPECT_EQ(slice.rows, 2);
  EXPECT_EQ(element(slice, 0, 0), 30.0f);
  EXPECT_EQ(element(slice, 1, 2), 42.0f);
  EXPECT_EQ(element(rows, 4, 2), 42.0f);
}

TEST(Rows, Bf16ElementsAreRoundedFp32OnesAreNot) {
  std::array<std::byte, 4> memory;
  const float value = 1.00390625f;  // 1 + 2^-8: halfway, to even
  set_element(Rows{memory.data(), DType::kBf16, 1, 1}, 0, 0, value);
  EXPECT_EQ(element(ConstRows{memory.data(), DType::kBf16, 1, 1}, 0, 0), 1.0f);
  set_element(Rows{memory.data(), DType::kFp32, 1, 1}, 0, 0, value);
  EXPECT_EQ(element(ConstRows{memory.data(), DType::kFp32, 1, 1}, 0, 0), value);
}

}  // namespace
}  // namespace moetax
