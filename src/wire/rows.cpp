#include "moetax/wire/rows.h"

// Vectors of a size unknown at compile time gain nothing here.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "wire/rows.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstring>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace moetax {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr std::size_t kLine = 64;

HWY_INLINE bool on_line(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % kLine == 0;
}

// The cache lines of [row + begin, row + end) that start in it.
HWY_INLINE void prefetch(const std::byte* row, std::size_t begin, std::size_t end) {
  for (std::size_t at = begin; at < end; at += kLine) hwy::Prefetch(row + at);
}

// There are no streaming stores of less than 16 bytes.
template <bool kStream, class D, class V, class T>
HWY_INLINE void put(D d, V v, T* to) {
  if constexpr (kStream && hn::MaxLanes(D()) * sizeof(T) >= 16) {
    hn::Stream(v, d, to);
  } else {
    hn::StoreU(v, d, to);
  }
}

// Four vectors a step keep the streaming stores to one destination together, so that whole lines leave the core.
template <bool kStream>
HWY_INLINE void copy_to_all(const std::byte* from, std::size_t bytes, std::span<std::byte* const> to,
                            const std::byte* next) {
  const hn::ScalableTag<std::uint8_t> d;
  const std::size_t lanes = hn::Lanes(d), step = 4 * lanes;
  const auto* in = reinterpret_cast<const std::uint8_t*>(from);
  std::size_t i = 0;
  for (; i + step <= bytes; i += step) {
    if (next) prefetch(next, i, i + step);
    const auto v0 = hn::LoadU(d, in + i);
    const auto v1 = hn::LoadU(d, in + i + lanes);
    const auto v2 = hn::LoadU(d, in + i + 2 * lanes);
    const auto v3 = hn::LoadU(d, in + i + 3 * lanes);
    for (std::byte* destination : to) {
      auto* out = reinterpret_cast<std::uint8_t*>(destination) + i;
      put<kStream>(d, v0, out);
      put<kStream>(d, v1, out + lanes);
      put<kStream>(d, v2, out + 2 * lanes);
      put<kStream>(d, v3, out + 3 * lanes);
    }
  }
  if (i == bytes) return;
  for (std::byte* destination : to) std::memcpy(destination + i, from + i, bytes - i);
}

void copy_row_impl(const std::byte* from, std::size_t bytes, std::span<std::byte* const> to, Store store,
                   const std::byte* next) {
  bool stream = store == Store::kStreaming;
  for (const std::byte* destination : to) stream = stream && on_line(destination);
  stream ? copy_to_all<true>(from, bytes, to, next) : copy_to_all<false>(from, bytes, to, next);
}

// Two vectors of a row as floats. In order from fp32; bf16 elements are split by their place in a 32-bit pair, even
// ones into `a` and odd ones into `b`, which is cheaper than keeping their order.
template <class D, class V>
HWY_INLINE void load_two(D d, const float* from, V& a, V& b) {
  a = hn::LoadU(d, from);
  b = hn::LoadU(d, from + hn::Lanes(d));
}

template <class D, class V>
HWY_INLINE void load_two(D d, const Bf16* from, V& a, V& b) {
  const hn::RebindToUnsigned<D> d32;
  const auto pairs = hn::LoadU(d32, reinterpret_cast<const std::uint32_t*>(from));
  a = hn::BitCast(d, hn::ShiftLeft<16>(pairs));
  b = hn::BitCast(d, hn::And(pairs, hn::Set(d32, 0xffff0000u)));
}

// to_bf16 of base/dtype.h, the result in the upper half.
template <class D, class V>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> round_to_bf16(D, V v) {
  const hn::RebindToUnsigned<D> d32;
  const auto bits = hn::BitCast(d32, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1));
  const auto rounded = hn::Add(hn::Add(bits, hn::Set(d32, 0x7fff)), odd);
  const auto quiet = hn::Or(bits, hn::Set(d32, 0x400000));
  return hn::IfThenElse(hn::RebindMask(d32, hn::IsNaN(v)), quiet, rounded);
}

template <bool kStream, class In, class D, class V>
HWY_INLINE void store_two(D d, V a, V b, Bf16* to) {
  const hn::RebindToUnsigned<D> d32;
  const auto low = hn::ShiftRight<16>(round_to_bf16(d, a));
  const auto high = hn::And(round_to_bf16(d, b), hn::Set(d32, 0xffff0000u));
  put<kStream>(d32, hn::Or(low, high), reinterpret_cast<std::uint32_t*>(to));
}

template <bool kStream, class In, class D, class V>
HWY_INLINE void store_two(D d, V a, V b, float* to) {
  if constexpr (std::is_same_v<In, float>) {
    put<kStream>(d, a, to);
    put<kStream>(d, b, to + hn::Lanes(d));
  } else {
    hn::StoreInterleaved2(a, b, d, to);
  }
}

HWY_INLINE void store_one(float value, float* to) {
  *to = value;
}
HWY_INLINE void store_one(float value, Bf16* to) {
  *to = to_bf16(value);
}

template <class In>
HWY_INLINE const In* term(const RowTerms& terms, std::size_t k) {
  return reinterpret_cast<const In*>(terms.rows[k]);
}

HWY_INLINE bool is_wide(const RowTerms& terms, std::size_t k) {
  return (terms.wide >> k & 1) != 0;
}

// Two vectors of a term from column c on, as load_two() splits them; kWide: some terms are fp32 among bf16 ones.
template <bool kWide, class In, class D, class V>
HWY_INLINE void load_term(D d, const RowTerms& terms, std::size_t k, std::size_t c, V& a, V& b) {
  if constexpr (kWide && !std::is_same_v<In, float>) {
    if (is_wide(terms, k)) {
      hn::LoadInterleaved2(d, term<float>(terms, k) + c, a, b);
      return;
    }
  }
  load_two(d, term<In>(terms, k) + c, a, b);
}

// Four vectors of the sum, from column c on. A null weight means all ones.
template <bool kStream, bool kWide, class In, class Out, class D>
HWY_INLINE void sum_four(D d, const RowTerms& terms, const float* weight, const In* addend, std::size_t c, Out* out) {
  const std::size_t two = 2 * hn::Lanes(d);
  hn::Vec<D> a0, b0, a1, b1;
  load_term<kWide, In>(d, terms, 0, c, a0, b0);
  load_term<kWide, In>(d, terms, 0, c + two, a1, b1);
  if (weight) {
    const auto w = hn::Set(d, weight[0]);
    a0 = hn::Mul(w, a0), b0 = hn::Mul(w, b0), a1 = hn::Mul(w, a1), b1 = hn::Mul(w, b1);
  }
  for (std::size_t k = 1; k < terms.rows.size(); ++k) {
    hn::Vec<D> x0, y0, x1, y1;
    load_term<kWide, In>(d, terms, k, c, x0, y0);
    load_term<kWide, In>(d, terms, k, c + two, x1, y1);
    if (weight) {
      const auto w = hn::Set(d, weight[k]);
      x0 = hn::Mul(w, x0), y0 = hn::Mul(w, y0), x1 = hn::Mul(w, x1), y1 = hn::Mul(w, y1);
    }
    a0 = hn::Add(a0, x0), b0 = hn::Add(b0, y0), a1 = hn::Add(a1, x1), b1 = hn::Add(b1, y1);
  }
  if (addend) {
    hn::Vec<D> x0, y0, x1, y1;
    load_two(d, addend + c, x0, y0);
    load_two(d, addend + c + two, x1, y1);
    a0 = hn::Add(a0, x0), b0 = hn::Add(b0, y0), a1 = hn::Add(a1, x1), b1 = hn::Add(b1, y1);
  }
  store_two<kStream, In>(d, a0, b0, out + c);
  store_two<kStream, In>(d, a1, b1, out + c + two);
}

template <class In>
HWY_INLINE float sum_one(const RowTerms& terms, const float* weight, const In* addend, std::size_t c) {
  float sum = 0;
  for (std::size_t k = 0; k < terms.rows.size(); ++k) {
    const float x = is_wide(terms, k) ? term<float>(terms, k)[c] : to_float(term<In>(terms, k)[c]);
    const float y = (weight ? weight[k] : 1.0f) * x;
    sum = k == 0 ? y : sum + y;
  }
  return addend ? sum + to_float(addend[c]) : sum;
}

// A token's rows lie on pages far apart, where the hardware's own prefetching starts anew each time: asking for the
// same columns of the next token's rows hides that.
template <bool kStream, bool kWide, class In, class Out>
HWY_INLINE void sum_rows(const RowTerms& terms, const float* weight, const In* addend, Out* out) {
  const hn::ScalableTag<float> d;
  const std::size_t cols = static_cast<std::size_t>(terms.cols), step = 4 * hn::Lanes(d);
  std::size_t c = 0;
  for (; c + step <= cols; c += step) {
    for (const std::byte* row : terms.next) prefetch(row, c * sizeof(In), (c + step) * sizeof(In));
    sum_four<kStream, kWide>(d, terms, weight, addend, c, out);
  }
  for (; c < cols; ++c) store_one(sum_one(terms, weight, addend, c), out + c);
}

template <class In, class Out>
void sum_rows_as(const RowTerms& terms, const float* weight, const std::byte* addend, Out* out, Store how) {
  const auto* add = reinterpret_cast<const In*>(addend);
  const bool stream = how == Store::kStreaming && on_line(out);
  if (terms.wide != 0) {
    stream ? sum_rows<true, true>(terms, weight, add, out) : sum_rows<false, true>(terms, weight, add, out);
  } else {
    stream ? sum_rows<true, false>(terms, weight, add, out) : sum_rows<false, false>(terms, weight, add, out);
  }
}

void weighted_sum_impl(DType dtype, const RowTerms& terms, const float* weight, const std::byte* addend, std::byte* out,
                       Store how) {
  if (dtype == DType::kBf16) {
    sum_rows_as<Bf16>(terms, weight, addend, reinterpret_cast<Bf16*>(out), how);
  } else {
    sum_rows_as<float>(terms, weight, addend, reinterpret_cast<float*>(out), how);
  }
}

void sum_impl(DType dtype, const RowTerms& terms, const float* weight, float* out, Store how) {
  if (dtype == DType::kBf16) {
    sum_rows_as<Bf16>(terms, weight, nullptr, out, how);
  } else {
    sum_rows_as<float>(terms, weight, nullptr, out, how);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace moetax
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moetax {

HWY_EXPORT(copy_row_impl);
HWY_EXPORT(weighted_sum_impl);
HWY_EXPORT(sum_impl);

void copy_row(const std::byte* from, std::size_t bytes, std::span<std::byte* const> to, Store store,
              const std::byte* next) {
  HWY_DYNAMIC_DISPATCH(copy_row_impl)(from, bytes, to, store, next);
}

void weighted_sum_row(DType dtype, const RowTerms& terms, std::span<const float> weight, const std::byte* addend,
                      std::byte* out, Store store) {
  HWY_DYNAMIC_DISPATCH(weighted_sum_impl)(dtype, terms, weight.data(), addend, out, store);
}

void sum_row(DType dtype, const RowTerms& terms, std::span<const float> weight, float* out, Store store) {
  HWY_DYNAMIC_DISPATCH(sum_impl)(dtype, terms, weight.empty() ? nullptr : weight.data(), out, store);
}

void finish_streaming() {
  hwy::FlushStream();
}

}  // namespace moetax
#endif  // HWY_ONCE
