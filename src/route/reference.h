// The weights of the reference router, for gradient checks that need them as a function in double precision.
#pragma once

#include <span>
#include <vector>

#include "moetax/route/router.h"

namespace moetax {

// weights[k] of chosen[k] for one token; the choice is given and stays.
std::vector<double> reference_weights(const RouterConfig& config, const std::vector<double>& logits,
                                      std::span<const std::int32_t> chosen);

}  // namespace moetax
