#include "moetax/wire/format.h"

#include <array>

namespace moetax {
namespace {

template <DType kType>
std::size_t plain_bytes(std::int64_t cols) {
  return static_cast<std::size_t>(cols) * size_of(kType);
}

constexpr std::array kFormats = {
    WireFormat{"bf16", DType::kBf16, true, plain_bytes<DType::kBf16>},
    WireFormat{"fp32", DType::kFp32, true, plain_bytes<DType::kFp32>},
};

}  // namespace

std::span<const WireFormat> wire_formats() {
  return kFormats;
}

const WireFormat& exact_format(DType dtype) {
  return kFormats[dtype == DType::kBf16 ? 0 : 1];
}

}  // namespace moetax
