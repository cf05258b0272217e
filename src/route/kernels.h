// The vector kernels of the router, dispatched at run time to the best instruction set of the machine.
#pragma once

#include <cstdint>
#include <span>

#include "moetax/base/matrix.h"
#include "moetax/route/router.h"

namespace moetax {

struct RouteJob {
  const RouterConfig& config;
  MatrixView<const float> logits;
  std::span<const float> bias;
  MatrixView<std::int32_t> expert;
  MatrixView<float> weight;
};

// Routes tokens [begin, end). Stops before the first block of tokens with a logit that is NaN or infinite and returns
// the block's first token; else returns `end`.
std::int64_t route_tokens(const RouteJob& job, std::int64_t begin, std::int64_t end);

// out[i] = exp(logits[i]) / sum of exp(logits). `out` must not overlap `logits`.
void softmax(std::span<const float> logits, float* out);

const char* kernels_isa();

}  // namespace moetax
