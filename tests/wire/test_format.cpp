#include <gtest/gtest.h>

#include "moetax/wire/format.h"

namespace moetax {
namespace {

TEST(WireFormat, ExactFormatsCarryTheElements) {
  for (const DType dtype : {DType::kBf16, DType::kFp32}) {
    const WireFormat& format = exact_format(dtype);
    EXPECT_EQ(format.name, to_string(dtype));
    EXPECT_EQ(format.dtype, dtype);
    EXPECT_TRUE(format.exact);
    EXPECT_EQ(format.row_bytes(2880), 2880 * size_of(dtype));
  }
}

TEST(WireFormat, TableNamesAreDistinct) {
  for (const WireFormat& a : wire_formats()) {
    for (const WireFormat& b : wire_formats()) EXPECT_EQ(a.name == b.name, &a == &b);
  }
}

}  // namespace
}  // namespace moetax
