#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "moetax/base/result.h"

namespace moetax {
namespace {

Result<int> half(int value) {
  if (value % 2 != 0) return fail(ErrorCode::kBadInput, std::to_string(value) + " is odd", 3);
  return value / 2;
}

Result<int> quarter(int value) {
  MOETAX_ASSIGN(const int first, half(value));
  MOETAX_ASSIGN(const int second, half(first));
  return second;
}

Result<void> check_even(int value) {
  MOETAX_TRY(half(value));
  return {};
}

TEST(Result, HoldsAValue) {
  const Result<int> result = half(8);
  ASSERT_TRUE(result);
  EXPECT_TRUE(result.has_value());
  EXPECT_EQ(*result, 4);
  EXPECT_EQ(result.value(), 4);
}

TEST(Result, HoldsAnErrorWithCodeMessageAndRank) {
  const Result<int> result = half(7);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kBadInput);
  EXPECT_EQ(result.error().message, "7 is odd");
  EXPECT_EQ(result.error().rank, 3);
  EXPECT_EQ(result.error().where, "");
}

TEST(Result, ErrorsHaveNoRankUnlessGiven) {
  const Result<void> result = fail(ErrorCode::kInternal, "x");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().rank, kNoRank);
}

TEST(Result, VoidSucceedsByDefault) {
  EXPECT_TRUE(Result<void>().has_value());
}

TEST(Result, TryLeavesWithTheFirstError) {
  EXPECT_TRUE(check_even(2));
  const auto result = check_even(5);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message, "5 is odd");
}

TEST(Result, AssignBindsValuesAndLeavesWithErrors) {
  const auto fine = quarter(12);
  ASSERT_TRUE(fine);
  EXPECT_EQ(*fine, 3);
  const auto odd = quarter(6);
  ASSERT_FALSE(odd);
  EXPECT_EQ(odd.error().message, "3 is odd");
}

TEST(Result, CarriesMoveOnlyValues) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(5);
  ASSERT_TRUE(result);
  EXPECT_EQ(**result, 5);
  const std::unique_ptr<int> taken = *std::move(result);
  EXPECT_EQ(*taken, 5);
}

TEST(Result, ArrowReachesIntoTheValue) {
  Result<std::string> result = std::string("abc");
  EXPECT_EQ(result->size(), 3u);
  result->push_back('d');
  EXPECT_EQ(*result, "abcd");
}

}  // namespace
}  // namespace moetax
