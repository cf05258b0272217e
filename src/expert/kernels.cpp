#include "expert/kernels.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "expert/kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace moetax {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
using Words = hn::Rebind<std::uint32_t, D>;
using Halves = hn::Rebind<std::uint16_t, D>;

HWY_INLINE V load(const float* from) {
  return hn::LoadU(D(), from);
}
HWY_INLINE V load(const Bf16* from) {
  const auto halves = hn::LoadU(Halves(), reinterpret_cast<const std::uint16_t*>(from));
  return hn::BitCast(D(), hn::ShiftLeft<16>(hn::PromoteTo(Words(), halves)));
}

HWY_INLINE void store(V v, float* to) {
  hn::StoreU(v, D(), to);
}
// to_bf16() of dtype.h, lane by lane.
HWY_INLINE void store(V v, Bf16* to) {
  const Words words;
  const auto bits = hn::BitCast(words, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(words, 1));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(words, 0x7fff)));
  const auto quiet = hn::Or(bits, hn::Set(words, 0x400000));
  const auto chosen = hn::IfThenElse(hn::RebindMask(words, hn::IsNaN(v)), quiet, rounded);
  const hn::Rebind<std::int32_t, D> ints;
  const auto upper = hn::BitCast(ints, hn::ShiftRight<16>(chosen));
  hn::StoreU(hn::DemoteTo(Halves(), upper), Halves(), reinterpret_cast<std::uint16_t*>(to));
}

// The same for the first `count` lanes, when the row ends before the vector does.
template <class T>
HWY_INLINE V load(const T* from, std::size_t count) {
  if (count == hn::Lanes(D())) return load(from);
  HWY_ALIGN T lanes[hn::MaxLanes(D())] = {};
  std::memcpy(lanes, from, count * sizeof(T));
  return load(lanes);
}
template <class T>
HWY_INLINE void store(V v, T* to, std::size_t count) {
  if (count == hn::Lanes(D())) return store(v, to);
  HWY_ALIGN T lanes[hn::MaxLanes(D())];
  store(v, lanes);
  std::memcpy(to, lanes, count * sizeof(T));
}
template <class T>
HWY_INLINE V rounded_to(V v) {
  HWY_ALIGN T lanes[hn::MaxLanes(D())];
  store(v, lanes);
  return load(lanes);
}
template <>
HWY_INLINE V rounded_to<float>(V v) {
  return v;
}

// body(index, lanes) over a row, a vector at a time.
template <class Body>
HWY_INLINE void for_each_vector(std::int64_t count, Body body) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(D()));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) body(i, static_cast<std::size_t>(lanes));
  if (i < count) body(i, static_cast<std::size_t>(count - i));
}

// e^x to about 2 units in the last place, for x in [-87, 88]; clamped outside. x = n ln 2 + r, e^r by a polynomial of
// degree 7 on |r| <= ln 2 / 2 (coefficients of Cephes' expf), times 2^n by way of the exponent field.
HWY_INLINE V exp_clamped(V x) {
  const D d;
  x = hn::Min(hn::Max(x, hn::Set(d, -87.0f)), hn::Set(d, 88.0f));
  const V n = hn::Round(hn::Mul(x, hn::Set(d, 1.44269504f)));
  V r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  V p = hn::Set(d, 1.9875691500e-4f);
  for (const float c : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f}) {
    p = hn::MulAdd(p, r, hn::Set(d, c));
  }
  p = hn::Add(hn::MulAdd(hn::Mul(p, r), r, r), hn::Set(d, 1.0f));
  const hn::Rebind<std::int32_t, D> ints;
  const auto exponent = hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(ints, n), hn::Set(ints, 127)));
  return hn::Mul(p, hn::BitCast(d, exponent));
}

HWY_INLINE V sigmoid(V x) {
  const V one = hn::Set(D(), 1.0f);
  return hn::Div(one, hn::Add(one, exp_clamped(hn::Neg(x))));
}

// The two activations: the value, and the derivatives by g and u. NaN in, NaN out.
struct Derivatives {
  V a, by_g, by_u;
};

struct SwiGlu {
  explicit SwiGlu(float) {}
  HWY_INLINE V value(V g, V u) const { return hn::Mul(hn::Mul(g, sigmoid(g)), u); }
  HWY_INLINE Derivatives derivatives(V g, V u) const {
    const V one = hn::Set(D(), 1.0f), s = sigmoid(g), silu = hn::Mul(g, s);
    const V by_g = hn::Mul(hn::Mul(u, s), hn::MulAdd(g, hn::Sub(one, s), one));
    return {hn::Mul(silu, u), by_g, silu};
  }
};

struct ClampedSwiGlu {
  static constexpr float kAlpha = 1.702f;
  float limit;
  explicit ClampedSwiGlu(float l) : limit(l) {}

  HWY_INLINE V value(V g, V u) const {
    const D d;
    const V top = hn::Set(d, limit), one = hn::Set(d, 1.0f);
    g = clamp_above(g, top);
    u = hn::Neg(clamp_above(hn::Neg(clamp_above(u, top)), top));
    return hn::Mul(hn::Mul(hn::Add(u, one), g), sigmoid(hn::Mul(g, hn::Set(d, kAlpha))));
  }
  HWY_INLINE Derivatives derivatives(V g, V u) const {
    const D d;
    const V top = hn::Set(d, limit), one = hn::Set(d, 1.0f), alpha = hn::Set(d, kAlpha);
    const auto g_cut = hn::Gt(g, top), u_cut = hn::Gt(hn::Abs(u), top);
    g = clamp_above(g, top);
    u = hn::Neg(clamp_above(hn::Neg(clamp_above(u, top)), top));
    const V s = sigmoid(hn::Mul(g, alpha)), gs = hn::Mul(g, s), up = hn::Add(u, one);
    const V slope = hn::MulAdd(hn::Mul(alpha, g), hn::Sub(one, s), one);
    return {hn::Mul(hn::Mul(up, g), s), hn::IfThenZeroElse(g_cut, hn::Mul(hn::Mul(up, s), slope)),
            hn::IfThenZeroElse(u_cut, gs)};
  }
  static HWY_INLINE V clamp_above(V x, V top) { return hn::IfThenElse(hn::Gt(x, top), top, x); }
};

template <class T, class Function>
void activate_row(Function f, std::int64_t inter, const T* gate_up, T* a) {
  for_each_vector(inter, [&](std::int64_t i, std::size_t n) HWY_ATTR {
    store(f.value(load(gate_up + i, n), load(gate_up + inter + i, n)), a + i, n);
  });
}

template <class T, class Function>
float activate_row_backward(Function f, std::int64_t inter, const T* gate_up, const float* d_a, float w, T* d_gate_up,
                            T* weighted_a) {
  const D d;
  const V weight = hn::Set(d, w);
  V sum = hn::Zero(d);
  for_each_vector(inter, [&](std::int64_t i, std::size_t n) HWY_ATTR {
    const Derivatives by = f.derivatives(load(gate_up + i, n), load(gate_up + inter + i, n));
    const V upstream = load(d_a + i, n), a = rounded_to<T>(by.a), weighted = hn::Mul(weight, upstream);
    // Lanes past the end of the row hold zeros of d_a, so they add nothing (a of zeros is zero or finite).
    sum = hn::MulAdd(upstream, a, sum);
    store(hn::Mul(weight, a), weighted_a + i, n);
    store(hn::Mul(weighted, by.by_g), d_gate_up + i, n);
    store(hn::Mul(weighted, by.by_u), d_gate_up + inter + i, n);
  });
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

template <class T>
float dot_row(const T* x, std::int64_t count, const float* y) {
  V sum = hn::Zero(D());
  for_each_vector(
      count, [&](std::int64_t i, std::size_t n) HWY_ATTR { sum = hn::MulAdd(load(x + i, n), load(y + i, n), sum); });
  return hn::GetLane(hn::SumOfLanes(D(), sum));
}

// Calls f with a null pointer of the dtype's element type.
template <class F>
HWY_INLINE auto with_type(DType dtype, F f) {
  return dtype == DType::kBf16 ? f(static_cast<Bf16*>(nullptr)) : f(static_cast<float*>(nullptr));
}
template <class T>
HWY_INLINE const T* as(const std::byte* p, const T*) {
  return reinterpret_cast<const T*>(p);
}
template <class T>
HWY_INLINE T* as(std::byte* p, const T*) {
  return reinterpret_cast<T*>(p);
}

template <class T>
void widen_row(const T* from, std::int64_t count, float* to) {
  for_each_vector(count, [&](std::int64_t i, std::size_t n) HWY_ATTR { store(load(from + i, n), to + i, n); });
}
template <class T>
void narrow_row(const float* from, const float* bias, std::int64_t count, T* to) {
  for_each_vector(count, [&](std::int64_t i, std::size_t n) HWY_ATTR {
    const V v = load(from + i, n);
    store(bias ? hn::Add(v, load(bias + i, n)) : v, to + i, n);
  });
}
template <class T>
void add_scaled_row(const T* x, std::int64_t count, float scale, float* sum) {
  const V factor = hn::Set(D(), scale);
  for_each_vector(count, [&](std::int64_t i, std::size_t n)
                             HWY_ATTR { store(hn::MulAdd(factor, load(x + i, n), load(sum + i, n)), sum + i, n); });
}

const char* Isa() {
  return hwy::TargetName(HWY_TARGET);
}
void Widen(const std::byte* from, DType dtype, std::int64_t count, float* to) {
  with_type(dtype, [&](auto* t) { widen_row(as(from, t), count, to); });
}
void Narrow(const float* from, const float* bias, DType dtype, std::int64_t count, std::byte* to) {
  with_type(dtype, [&](auto* t) { narrow_row(from, bias, count, as(to, t)); });
}
void Activate(const ActivationSpec& spec, const std::byte* gate_up, std::byte* a) {
  with_type(spec.dtype, [&](auto* t) {
    if (spec.kind == Activation::kSwiGlu) {
      activate_row(SwiGlu(spec.limit), spec.inter, as(gate_up, t), as(a, t));
    } else {
      activate_row(ClampedSwiGlu(spec.limit), spec.inter, as(gate_up, t), as(a, t));
    }
  });
}
float ActivateBackward(const ActivationSpec& spec, const std::byte* gate_up, const float* d_a, float w,
                       std::byte* d_gate_up, std::byte* weighted_a) {
  return with_type(spec.dtype, [&](auto* t) {
    const auto run = [&](auto f) {
      return activate_row_backward(f, spec.inter, as(gate_up, t), d_a, w, as(d_gate_up, t), as(weighted_a, t));
    };
    return spec.kind == Activation::kSwiGlu ? run(SwiGlu(spec.limit)) : run(ClampedSwiGlu(spec.limit));
  });
}
float Dot(const std::byte* x, DType dtype, std::int64_t count, const float* y) {
  return with_type(dtype, [&](auto* t) { return dot_row(as(x, t), count, y); });
}
void AddScaled(const std::byte* x, DType dtype, std::int64_t count, float scale, float* sum) {
  with_type(dtype, [&](auto* t) { add_scaled_row(as(x, t), count, scale, sum); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace moetax
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moetax {

HWY_EXPORT(Isa);
HWY_EXPORT(Widen);
HWY_EXPORT(Narrow);
HWY_EXPORT(Activate);
HWY_EXPORT(ActivateBackward);
HWY_EXPORT(Dot);
HWY_EXPORT(AddScaled);

const char* ffn_kernels_isa() {
  return HWY_DYNAMIC_DISPATCH(Isa)();
}
void widen(const std::byte* from, DType dtype, std::int64_t count, float* to) {
  HWY_DYNAMIC_DISPATCH(Widen)(from, dtype, count, to);
}
void narrow(const float* from, const float* bias, DType dtype, std::int64_t count, std::byte* to) {
  HWY_DYNAMIC_DISPATCH(Narrow)(from, bias, dtype, count, to);
}
void activate(const ActivationSpec& spec, const std::byte* gate_up, std::byte* a) {
  HWY_DYNAMIC_DISPATCH(Activate)(spec, gate_up, a);
}
float activate_backward(const ActivationSpec& spec, const std::byte* gate_up, const float* d_a, float w,
                        std::byte* d_gate_up, std::byte* weighted_a) {
  return HWY_DYNAMIC_DISPATCH(ActivateBackward)(spec, gate_up, d_a, w, d_gate_up, weighted_a);
}
float dot(const std::byte* x, DType dtype, std::int64_t count, const float* y) {
  return HWY_DYNAMIC_DISPATCH(Dot)(x, dtype, count, y);
}
void add_scaled(const std::byte* x, DType dtype, std::int64_t count, float scale, float* sum) {
  HWY_DYNAMIC_DISPATCH(AddScaled)(x, dtype, count, scale, sum);
}

}  // namespace moetax
#endif
