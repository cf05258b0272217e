// The router as the papers write it: one token at a time, in double precision.
#include "route/reference.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "moetax/route/router.h"
#include "route/choice.h"

namespace moetax {
namespace {

using Values = std::vector<double>;
constexpr double kClosed = -std::numeric_limits<double>::infinity();

double log_sum_exp(const Values& x) {
  const double top = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (const double value : x) sum += std::exp(value - top);
  return top + std::log(sum);
}

double log_sigmoid(double x) {
  return x >= 0 ? -std::log1p(std::exp(-x)) : x - std::log1p(std::exp(x));
}

// Logarithms, because a score can be too small for a double and still have a share among the chosen.
Values log_scores(const RouterConfig& config, const Values& logits) {
  Values log_score(logits.size());
  const double log_sum = config.score == Score::kSoftmax ? log_sum_exp(logits) : 0;
  for (std::size_t e = 0; e < logits.size(); ++e) {
    log_score[e] = config.score == Score::kSoftmax ? logits[e] - log_sum : log_sigmoid(logits[e]);
  }
  return log_score;
}

// Indices of the `count` largest values, largest first, the lower index first among equals.
std::vector<std::int32_t> best_indices(const Values& values, int count) {
  std::vector<std::int32_t> index(values.size());
  std::iota(index.begin(), index.end(), 0);
  std::stable_sort(index.begin(), index.end(), [&](std::int32_t a, std::int32_t b) { return values[a] > values[b]; });
  index.resize(count);
  return index;
}

double score_group(const RouterConfig& config, Values members) {
  std::sort(members.begin(), members.end(), std::greater<>());
  return config.group_score == GroupScore::kMax ? members[0] : members[0] + members[1];
}

// The values with all experts outside the token's best groups closed.
Values close_groups(const RouterConfig& config, const Values& values) {
  const std::ptrdiff_t per_group = config.experts / config.groups;
  Values group_score;
  for (int g = 0; g < config.groups; ++g) {
    const auto first = values.begin() + g * per_group;
    group_score.push_back(score_group(config, Values(first, first + per_group)));
  }
  Values open(values.size(), kClosed);
  for (const std::int32_t g : best_indices(group_score, config.topk_groups)) {
    std::copy_n(values.begin() + g * per_group, per_group, open.begin() + g * per_group);
  }
  return open;
}

std::vector<std::int32_t> choose(const RouterConfig& config, const Values& logits, std::span<const float> bias) {
  Values value = logits;
  if (!compares_logits(config, bias)) {
    const Values log_score = log_scores(config, logits);
    for (std::size_t e = 0; e < value.size(); ++e) value[e] = std::exp(log_score[e]) + (bias.empty() ? 0.0 : bias[e]);
  }
  if (limits_groups(config)) value = close_groups(config, value);
  return best_indices(value, config.topk);
}

}  // namespace

Values reference_weights(const RouterConfig& config, const Values& logits, std::span<const std::int32_t> chosen) {
  const Values log_score = log_scores(config, logits);
  Values weight;
  for (const std::int32_t e : chosen) weight.push_back(log_score[e]);
  const double log_sum = config.renormalize ? log_sum_exp(weight) : 0;
  for (double& w : weight) w = config.scale * std::exp(w - log_sum);
  return weight;
}

Result<void> route_reference(const RouterConfig& config, MatrixView<const float> logits, std::span<const float> bias,
                             RoutingTable& out, std::int64_t first_token) {
  MOETAX_TRY(check_arguments(config, logits, bias));
  out.resize(logits.rows, config.topk);
  for (std::int64_t t = 0; t < logits.rows; ++t) {
    const auto row = logits.row_span(t);
    if (!std::all_of(row.begin(), row.end(), [](float x) { return std::isfinite(x); })) {
      return report_bad_logit(logits, t, first_token);
    }
    const Values token(row.begin(), row.end());
    const std::vector<std::int32_t> chosen = choose(config, token, bias);
    const Values weight = reference_weights(config, token, chosen);
    std::copy(chosen.begin(), chosen.end(), out.expert().row(t));
    std::transform(weight.begin(), weight.end(), out.weight().row(t), [](double w) { return static_cast<float>(w); });
  }
  return {};
}

}  // namespace moetax
