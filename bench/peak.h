// The arithmetic limit of this machine, measured: threads that do nothing but bf16 dot products on registers.
#pragma once

#include <cstdint>

#include "moetax/base/clock.h"
#include "moetax/base/parallel.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace moetax::bench {

#if defined(__x86_64__)

inline bool has_bf16_dot_products() {
  return __builtin_cpu_supports("avx512bf16") != 0;
}

// `rounds` times 16 independent dot products of 32 pairs each: enough in flight to hide their latency.
__attribute__((target("avx512f,avx512bf16"))) inline void dot_products_on_registers(std::int64_t rounds) {
  __m512 sum[16];
  for (auto& s : sum) s = _mm512_setzero_ps();
  const auto a = (__m512bh)_mm512_set1_epi32(0x3f803f80), b = (__m512bh)_mm512_set1_epi32(0x3c003c00);
  for (std::int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (auto& s : sum) {
      s = _mm512_dpbf16_ps(s, a, b);
      asm volatile("" : "+v"(s));  // each must happen, in a register
    }
  }
}

#else

inline bool has_bf16_dot_products() {
  return false;
}
inline void dot_products_on_registers(std::int64_t) {}

#endif

inline constexpr double kFlopsPerDotRound = 16.0 * 32 * 2;

// FLOP/s of bf16 dot products on `threads` threads for about a tenth of a second, or 0 without the instructions: the
// best rate of a dense product is then the nearest thing to a peak.
inline double bf16_register_peak(int threads) {
  if (!has_bf16_dot_products()) return 0;
  constexpr std::int64_t kRounds = 40'000'000 / 4;
  const std::int64_t start = now_ns();
  parallel_for(threads, threads, 1, [&](std::int64_t, std::int64_t) { dot_products_on_registers(kRounds); });
  return threads * static_cast<double>(kRounds) * kFlopsPerDotRound / (static_cast<double>(now_ns() - start) * 1e-9);
}

}  // namespace moetax::bench
