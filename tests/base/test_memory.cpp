#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "moetax/base/memory.h"

namespace moetax {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

TEST(PageBuffer, IsAlignedZeroFilledAndWritable) {
  auto buffer = PageBuffer::reserve(3 * kMiB + 5);
  ASSERT_TRUE(buffer) << buffer.error().message;
  EXPECT_EQ(buffer->size(), 3 * kMiB + 5);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->data()) % (2 * kMiB), 0u);
  const auto bytes = buffer->span_of<std::byte>();
  EXPECT_TRUE(std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; }));
  std::fill(bytes.begin(), bytes.end(), std::byte{1});
  EXPECT_EQ(buffer->data()[buffer->size() - 1], std::byte{1});
}

TEST(PageBuffer, ZeroBytesAreAnEmptyBuffer) {
  const auto buffer = PageBuffer::reserve(0);
  ASSERT_TRUE(buffer);
  EXPECT_EQ(buffer->data(), nullptr);
  EXPECT_EQ(buffer->size(), 0u);
}

TEST(PageBuffer, ReservesMoreThanItTakesAndTakesWhatIsTouched) {
  constexpr std::size_t kReserved = std::size_t{8} << 30;
  const auto buffer = PageBuffer::reserve(kReserved);
  ASSERT_TRUE(buffer) << buffer.error().message;
  EXPECT_EQ(resident_bytes(buffer->data(), 64 * kMiB), 0u);
  for (std::size_t at = 16 * kMiB; at < 20 * kMiB; at += 4096) buffer->data()[at] = std::byte{1};
  const std::size_t resident = resident_bytes(buffer->data(), 64 * kMiB);
  EXPECT_GE(resident, 4 * kMiB);
  EXPECT_LE(resident, 8 * kMiB);  // a huge page more on either side at most
}

TEST(ResidentBytes, CountsNoMoreThanItIsAskedFor) {
  const auto buffer = PageBuffer::reserve(2 * kMiB);
  ASSERT_TRUE(buffer);
  buffer->data()[100] = std::byte{1};
  EXPECT_EQ(resident_bytes(buffer->data() + 90, 50), 50u);
  EXPECT_EQ(resident_bytes(buffer->data(), 0), 0u);
}

TEST(PageBuffer, AddressSpaceThatCannotBeHadIsAnErrorThatSaysHowMuch) {
  const std::size_t too_much = std::size_t{1} << 60;
  const auto buffer = PageBuffer::reserve(too_much);
  ASSERT_FALSE(buffer);
  EXPECT_EQ(buffer.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(buffer.error().message.find(std::to_string(too_much)), std::string::npos);
}

// Rounding up to pages must not wrap around to a small mapping.
TEST(PageBuffer, TheLargestSizeIsAnErrorToo) {
  const auto buffer = PageBuffer::reserve(std::numeric_limits<std::size_t>::max());
  ASSERT_FALSE(buffer);
  EXPECT_EQ(buffer.error().code, ErrorCode::kUnavailable);
}

TEST(PageBuffer, MovingHandsTheMappingOver) {
  PageBuffer first = *PageBuffer::reserve(kMiB);
  first.as<int>()[0] = 42;
  const std::byte* address = first.data();
  PageBuffer second = std::move(first);
  EXPECT_EQ(second.data(), address);
  PageBuffer third = *PageBuffer::reserve(kMiB);
  third = std::move(second);
  EXPECT_EQ(third.data(), address);
  EXPECT_EQ(third.as<int>()[0], 42);
}

}  // namespace
}  // namespace moetax
