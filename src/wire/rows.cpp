#include "moetax/wire/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "wire/rows.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstring>

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

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const float* from) {
  return hn::LoadU(d, from);
}

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const Bf16* from) {
  const hn::RebindToUnsigned<D> d32;
  const hn::Rebind<std::uint16_t, D> d16;
  const auto bits = hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(from));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, bits)));
}

template <bool kStream, class D>
HWY_INLINE void store(D d, hn::Vec<D> v, float* to) {
  put<kStream>(d, v, to);
}

// to_bf16 of base/dtype.h, a vector at a time.
template <bool kStream, class D>
HWY_INLINE void store(D, hn::Vec<D> v, Bf16* to) {
  const hn::RebindToUnsigned<D> d32;
  const hn::Rebind<std::uint16_t, D> d16;
  const auto bits = hn::BitCast(d32, v);
  const auto high = hn::ShiftRight<16>(bits);
  const auto odd = hn::And(high, hn::Set(d32, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(d32, 0x7fff)), odd));
  const auto quiet = hn::Or(high, hn::Set(d32, 0x40));
  const auto is_nan = hn::RebindMask(d32, hn::IsNaN(v));
  const auto result = hn::TruncateTo(d16, hn::IfThenElse(is_nan, quiet, rounded));
  put<kStream>(d16, result, reinterpret_cast<std::uint16_t*>(to));
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

// One vector of the sum, from column c on. A null weight means all ones.
template <class In, class D>
HWY_INLINE hn::Vec<D> sum_at(D d, const RowTerms& terms, const float* weight, const In* addend, std::size_t c) {
  auto sum = load(d, term<In>(terms, 0) + c);
  if (weight) sum = hn::Mul(hn::Set(d, weight[0]), sum);
  for (std::size_t k = 1; k < terms.rows.size(); ++k) {
    auto y = load(d, term<In>(terms, k) + c);
    if (weight) y = hn::Mul(hn::Set(d, weight[k]), y);
    sum = hn::Add(sum, y);
  }
  return addend ? hn::Add(sum, load(d, addend + c)) : sum;
}

// A line of each input row a step. A token's rows lie on pages far apart, where the hardware's own prefetching starts
// anew each time: asking for the same column of the next token's rows hides that.
template <bool kStream, class In, class Out>
HWY_INLINE void sum_rows(const RowTerms& terms, const float* weight, const In* addend, Out* out) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const std::size_t lanes = hn::Lanes(d), cols = static_cast<std::size_t>(terms.cols), step = kLine / sizeof(In);
  std::size_t c = 0;
  for (; c + step <= cols; c += step) {
    for (const std::byte* row : terms.next) hwy::Prefetch(row + c * sizeof(In));
    for (std::size_t i = c; i < c + step; i += lanes) store<kStream>(d, sum_at(d, terms, weight, addend, i), out + i);
  }
  for (; c < cols; ++c) store_one(hn::GetLane(sum_at(one, terms, weight, addend, c)), out + c);
}

template <class In, class Out>
void sum_rows_as(const RowTerms& terms, const float* weight, const std::byte* addend, Out* out, Store how) {
  const auto* add = reinterpret_cast<const In*>(addend);
  if (how == Store::kStreaming && on_line(out)) {
    sum_rows<true>(terms, weight, add, out);
  } else {
    sum_rows<false>(terms, weight, add, out);
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

void sum_impl(DType dtype, const RowTerms& terms, float* out, Store how) {
  if (dtype == DType::kBf16) {
    sum_rows_as<Bf16>(terms, nullptr, nullptr, out, how);
  } else {
    sum_rows_as<float>(terms, nullptr, nullptr, out, how);
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

void sum_row(DType dtype, const RowTerms& terms, float* out, Store store) {
  HWY_DYNAMIC_DISPATCH(sum_impl)(dtype, terms, out, store);
}

void finish_streaming() {
  hwy::FlushStream();
}

}  // namespace moetax
#endif  // HWY_ONCE
