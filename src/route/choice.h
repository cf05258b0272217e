// The rules of the choice that the fast kernel and the reference share.
#pragma once

#include <span>

#include "moetax/base/matrix.h"
#include "moetax/base/result.h"
#include "moetax/route/router.h"

namespace moetax {

// Whether experts and groups can be compared by their logits. Scores grow with the logits, so only a bias or a sum of
// scores needs the scores themselves; logits are better where they do, because distinct logits can round to one score.
inline bool compares_logits(const RouterConfig& config, std::span<const float> bias) {
  const bool sums_scores = config.groups > 1 && config.group_score == GroupScore::kTopTwoSum;
  return bias.empty() && !sums_scores;
}

// Whether a token may use some groups only.
inline bool limits_groups(const RouterConfig& config) {
  return config.topk_groups < config.groups;
}

// What route() and route_reference() require of their arguments, logits' values apart.
Result<void> check_arguments(const RouterConfig& config, MatrixView<const float> logits, std::span<const float> bias);

// The error for the first logit that is NaN or infinite in tokens [begin, rows); there must be one.
Unexpected report_bad_logit(MatrixView<const float> logits, std::int64_t begin, std::int64_t first_token);

}  // namespace moetax
