// Element types of tokens and weights, and the bf16 number format.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace moetax {

enum class DType : std::uint8_t { kBf16, kFp32 };

constexpr std::size_t size_of(DType dtype) {
  return dtype == DType::kBf16 ? 2 : 4;
}
constexpr std::string_view to_string(DType dtype) {
  return dtype == DType::kBf16 ? "bf16" : "fp32";
}

// bfloat16: the upper half of an IEEE binary32.
struct Bf16 {
  std::uint16_t bits = 0;
};

constexpr float to_float(Bf16 value) {
  return std::bit_cast<float>(std::uint32_t{value.bits} << 16);
}
constexpr float to_float(float value) {
  return value;
}

// Round to nearest, ties to even; NaN stays NaN.
constexpr Bf16 to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return Bf16{static_cast<std::uint16_t>((bits >> 16) | 0x40u)};
  return Bf16{static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

}  // namespace moetax
