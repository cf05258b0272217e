#include "machine/isa.h"

#include <hwy/targets.h>

#include <cstdint>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace moetax {

#if defined(__x86_64__) || defined(__i386__)
namespace {

// Which register files the kernel saves on a context switch (XCR0). Only called where CPUID reports OSXSAVE.
std::uint64_t saved_registers() {
  std::uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (std::uint64_t{high} << 32) | low;
}

bool has_bit(unsigned word, int bit) {
  return ((word >> bit) & 1u) != 0;
}

}  // namespace

Isa detect_isa() {
  // Highway knows AVX2 and AVX-512 but not the bf16 and tile extensions, which the GEMM library uses.
  const auto targets = static_cast<std::uint64_t>(hwy::SupportedTargets());
  if ((targets & HWY_AVX3) == 0) return {(targets & HWY_AVX2) != 0 ? "avx2" : "baseline", false};
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool bf16 = __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && has_bit(a, 5);
  if (!bf16) return {"avx512", false};
  constexpr std::uint64_t kTileState = 0x60000;  // XCR0 bits 17 (configuration) and 18 (data)
  const bool amx = __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && has_bit(d, 22) && has_bit(d, 24) &&
                   (saved_registers() & kTileState) == kTileState;
  return {amx ? "avx512-bf16+amx" : "avx512-bf16", true};
}

#elif defined(__aarch64__)

Isa detect_isa() {
  constexpr unsigned long kHwcap2Bf16 = 1ul << 14;
  return {"neon", (getauxval(AT_HWCAP2) & kHwcap2Bf16) != 0};
}

#else

Isa detect_isa() {
  return {};
}

#endif

}  // namespace moetax
