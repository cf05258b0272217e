// Wire formats: how a row of H elements looks while it travels between ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "moetax/base/dtype.h"

namespace moetax {

// One format. The exact formats carry the elements as they are; a row of them is a plain copy.
struct WireFormat {
  std::string_view name;  // as options, bills and messages spell it
  DType dtype;            // of the rows at both ends
  bool exact;             // what arrives has the bits of what was sent
  std::size_t (*row_bytes)(std::int64_t cols);
};

// Every format there is, in the order shown to users: the one table to add a format to.
std::span<const WireFormat> wire_formats();

// The exact format for rows of `dtype`.
const WireFormat& exact_format(DType dtype);

}  // namespace moetax
