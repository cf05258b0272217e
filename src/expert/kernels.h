// Row kernels around the matrix products: conversions, the activation and its gradient. Vectorised, with the
// instruction set chosen at run time. An element's bits do not depend on its neighbours, a sum's only on the length of
// the row.
#pragma once

#include <cstddef>
#include <cstdint>

#include "moetax/base/dtype.h"
#include "moetax/expert/feed_forward.h"

namespace moetax {

// `count` elements of a dtype to fp32, and back (rounded to nearest even), after adding `bias` [count] unless it is
// null.
void widen(const std::byte* from, DType dtype, std::int64_t count, float* to);
void narrow(const float* from, const float* bias, DType dtype, std::int64_t count, std::byte* to);

struct ActivationSpec {
  Activation kind = Activation::kSwiGlu;
  float limit = 0;
  DType dtype = DType::kBf16;  // of g, u, a and their gradients
  std::int64_t inter = 0;      // I
};

// One row: a [I] from [g | u] [2I]. Computed in fp32, rounded once.
void activate(const ActivationSpec& spec, const std::byte* gate_up, std::byte* a);

// One row of the gradient, with d_a the gradient of a for a gate weight of one, and w the row's gate weight:
// d_gate_up [2I] = w * d_a * (da/dg | da/du), weighted_a [I] = w * a, each rounded once. Returns <d_a, a>.
float activate_backward(const ActivationSpec& spec, const std::byte* gate_up, const float* d_a, float w,
                        std::byte* d_gate_up, std::byte* weighted_a);

// The instruction set these kernels run with.
const char* ffn_kernels_isa();

// <x, y>, and sum += scale * x, for one row x of a dtype.
float dot(const std::byte* x, DType dtype, std::int64_t count, const float* y);
void add_scaled(const std::byte* x, DType dtype, std::int64_t count, float scale, float* sum);

}  // namespace moetax
