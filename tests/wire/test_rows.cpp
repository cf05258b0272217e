// The row kernels against plain loops, bit for bit, on every instruction set this machine has.
#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "moetax/base/matrix.h"
#include "moetax/base/random.h"
#include "moetax/wire/rows.h"

namespace moetax {
namespace {

constexpr std::int64_t kLengths[] = {1, 7, 31, 32, 33, 64, 100, 257, 2880};
constexpr Store kStores[] = {Store::kCached, Store::kStreaming};
constexpr std::byte kGuard{0xa5};

// A row of random elements that starts `shift` bytes after a cache line, between guard bytes.
class Row {
 public:
  Row(DType dtype, std::int64_t cols, std::size_t shift, std::uint64_t stream)
      : bytes_(static_cast<std::size_t>(cols) * size_of(dtype)), storage_(bytes_ + 256, kGuard) {
    const auto address = reinterpret_cast<std::uintptr_t>(storage_.data());
    begin_ = 64 + (64 - address % 64) % 64 + shift;
    const RandomStream random(7, stream);
    for (std::int64_t i = 0; i < cols; ++i) set_element({data(), dtype, 1, cols}, 0, i, random.normal(i));
  }
  std::byte* data() { return storage_.data() + begin_; }
  std::size_t bytes() const { return bytes_; }
  bool guards_intact() const {
    for (std::size_t i = 0; i < storage_.size(); ++i) {
      if ((i < begin_ || i >= begin_ + bytes_) && storage_[i] != kGuard) return false;
    }
    return true;
  }

 private:
  std::size_t bytes_;
  std::vector<std::byte> storage_;
  std::size_t begin_ = 0;
};

// Runs each test once per instruction set.
class RowKernels : public testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override { choose(GetParam()); }
  void TearDown() override { choose(0); }

 private:
  static void choose(std::int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

TEST_P(RowKernels, CopyReachesEveryDestinationAndNothingElse) {
  for (const std::int64_t bytes : kLengths) {
    for (const Store store : kStores) {
      for (const std::size_t shift : {0, 2, 32}) {
        Row from(DType::kBf16, bytes, 4, 1);
        std::vector<Row> to;
        std::vector<std::byte*> pointers;
        for (std::uint64_t i = 0; i < 5; ++i) to.emplace_back(DType::kBf16, bytes, shift, 2 + i);
        for (Row& row : to) pointers.push_back(row.data());
        copy_row(from.data(), from.bytes(), pointers, store, bytes % 2 ? from.data() : nullptr);
        finish_streaming();
        for (Row& row : to) {
          EXPECT_EQ(std::memcmp(row.data(), from.data(), from.bytes()), 0) << bytes << " elements, shift " << shift;
          EXPECT_TRUE(row.guards_intact());
        }
      }
    }
  }
}

TEST_P(RowKernels, WeightedSumHasTheBitsOfThePlainLoop) {
  for (const DType dtype : {DType::kBf16, DType::kFp32}) {
    for (const std::int64_t cols : kLengths) {
      for (const std::size_t num_rows : {1, 2, 6, 8}) {
        for (const bool with_addend : {false, true}) {
          const Store store = (cols + static_cast<std::int64_t>(num_rows)) % 2 ? Store::kStreaming : Store::kCached;
          std::vector<Row> rows;
          std::vector<const std::byte*> pointers;
          std::vector<float> weight;
          for (std::size_t k = 0; k < num_rows; ++k) rows.emplace_back(dtype, cols, 4 * k, k);
          for (Row& row : rows) pointers.push_back(row.data());
          for (std::size_t k = 0; k < num_rows; ++k) weight.push_back(RandomStream(3, 0).normal(k));
          Row addend(dtype, cols, 0, 50), expected(dtype, cols, 0, 51), out(dtype, cols, 0, 52);
          for (std::int64_t c = 0; c < cols; ++c) {
            float sum = 0;
            for (std::size_t k = 0; k < num_rows; ++k) {
              const float product = weight[k] * element({rows[k].data(), dtype, 1, cols}, 0, c);
              sum = k == 0 ? product : sum + product;
            }
            if (with_addend) sum += element({addend.data(), dtype, 1, cols}, 0, c);
            set_element({expected.data(), dtype, 1, cols}, 0, c, sum);
          }
          const std::vector<const std::byte*> next(num_rows, rows[0].data());
          weighted_sum_row(dtype, {pointers, next, cols}, weight, with_addend ? addend.data() : nullptr, out.data(),
                           store);
          finish_streaming();
          EXPECT_EQ(std::memcmp(out.data(), expected.data(), out.bytes()), 0)
              << to_string(dtype) << ", " << cols << " elements, " << num_rows << " rows";
          EXPECT_TRUE(out.guards_intact());
        }
      }
    }
  }
}

TEST_P(RowKernels, WeightedSumMayOverwriteItsAddend) {
  const std::int64_t cols = 100;
  Row y(DType::kFp32, cols, 0, 1), addend(DType::kFp32, cols, 0, 2), expected(DType::kFp32, cols, 0, 3);
  const float weight = 0.75f;
  const std::byte* rows[] = {y.data()};
  weighted_sum_row(DType::kFp32, {rows, {}, cols}, {&weight, 1}, addend.data(), expected.data(), Store::kCached);
  weighted_sum_row(DType::kFp32, {rows, {}, cols}, {&weight, 1}, addend.data(), addend.data(), Store::kCached);
  EXPECT_EQ(std::memcmp(addend.data(), expected.data(), expected.bytes()), 0);
}

TEST_P(RowKernels, SumToFloatHasTheBitsOfThePlainLoop) {
  for (const DType dtype : {DType::kBf16, DType::kFp32}) {
    for (const std::int64_t cols : kLengths) {
      for (const Store store : kStores) {
        Row a(dtype, cols, 0, 1), b(dtype, cols, 2 * size_of(dtype), 2), c(dtype, cols, 0, 3);
        const std::byte* rows[] = {a.data(), b.data(), c.data()};
        Row out(DType::kFp32, cols, 0, 4);
        sum_row(dtype, {rows, {}, cols}, {}, reinterpret_cast<float*>(out.data()), store);
        finish_streaming();
        for (std::int64_t i = 0; i < cols; ++i) {
          float sum = element({a.data(), dtype, 1, cols}, 0, i);
          sum += element({b.data(), dtype, 1, cols}, 0, i);
          sum += element({c.data(), dtype, 1, cols}, 0, i);
          EXPECT_EQ(element({out.data(), DType::kFp32, 1, cols}, 0, i), sum);
        }
        EXPECT_TRUE(out.guards_intact());
      }
    }
  }
}

// bf16 rows with fp32 ones among them, in any place.
TEST_P(RowKernels, WideTermsHaveTheBitsOfThePlainLoop) {
  for (const std::int64_t cols : kLengths) {
    for (std::uint64_t wide = 0; wide < 8; ++wide) {
      std::vector<Row> made;
      std::vector<DType> dtypes;
      for (std::uint64_t k = 0; k < 3; ++k) {
        dtypes.push_back((wide >> k & 1) != 0 ? DType::kFp32 : DType::kBf16);
        made.emplace_back(dtypes.back(), cols, 0, static_cast<int>(k) + 1);
      }
      const std::byte* rows[] = {made[0].data(), made[1].data(), made[2].data()};
      const float weight[] = {0.3f, 1.0f, -2.7f};
      Row rounded(DType::kBf16, cols, 0, 4), whole(DType::kFp32, cols, 0, 5);
      const RowTerms terms{rows, {}, cols, wide};
      weighted_sum_row(DType::kBf16, terms, weight, nullptr, rounded.data(), Store::kCached);
      sum_row(DType::kBf16, terms, weight, reinterpret_cast<float*>(whole.data()), Store::kCached);
      for (std::int64_t i = 0; i < cols; ++i) {
        float sum = 0;
        for (std::size_t k = 0; k < 3; ++k) {
          const float product = weight[k] * element({made[k].data(), dtypes[k], 1, cols}, 0, i);
          sum = k == 0 ? product : sum + product;
        }
        EXPECT_EQ(element({whole.data(), DType::kFp32, 1, cols}, 0, i), sum) << cols << ' ' << wide;
        EXPECT_EQ(element({rounded.data(), DType::kBf16, 1, cols}, 0, i), to_float(to_bf16(sum)));
      }
      EXPECT_TRUE(rounded.guards_intact() && whole.guards_intact());
    }
  }
}

TEST_P(RowKernels, RoundingOfSpecialValuesIsThatOfToBf16) {
  const float specials[] = {0.0f,
                            -0.0f,
                            1.00390625f,  // ties to even, down
                            1.01171875f,  // ties to even, up
                            std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::max(),  // rounds to infinity
                            std::numeric_limits<float>::denorm_min(),
                            std::nanf("")};
  const std::int64_t cols = 36;
  for (const float special : specials) {
    // bf16 inputs cannot hold these values, so they come in as weights of a row of ones.
    Row ones(DType::kBf16, cols, 0, 1), out(DType::kBf16, cols, 0, 2);
    for (std::int64_t i = 0; i < cols; ++i) set_element({ones.data(), DType::kBf16, 1, cols}, 0, i, 1.0f);
    const std::byte* rows[] = {ones.data()};
    weighted_sum_row(DType::kBf16, {rows, {}, cols}, {&special, 1}, nullptr, out.data(), Store::kCached);
    for (std::int64_t i = 0; i < cols; ++i) {
      Bf16 value;
      std::memcpy(&value, out.data() + 2 * i, sizeof value);
      EXPECT_EQ(value.bits, to_bf16(special).bits) << special << " at " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllTargets, RowKernels, testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& target) { return std::string(hwy::TargetName(target.param)); });

}  // namespace
}  // namespace moetax
