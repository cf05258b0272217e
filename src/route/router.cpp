#include "moetax/route/router.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <cassert>
#include <cmath>

#include "moetax/base/parallel.h"
#include "route/choice.h"
#include "route/kernels.h"

namespace moetax {
namespace {

// Tokens a thread takes at least: several vector blocks, and some microseconds of work to pay for waking it.
constexpr std::int64_t kTokenGrain = 64;

Unexpected usage(std::string message) {
  return fail(ErrorCode::kUsage, "router: " + std::move(message));
}

void keep_smaller(std::atomic<std::int64_t>& smallest, std::int64_t value) {
  std::int64_t seen = smallest.load();
  while (value < seen && !smallest.compare_exchange_weak(seen, value)) {
  }
}

Result<void> validate_groups(const RouterConfig& config) {
  const auto [experts, topk, groups, topk_groups] =
      std::array{config.experts, config.topk, config.groups, config.topk_groups};
  if (groups < 1 || groups > kMaxGroups) return usage(fmt::format("groups = {}, expected 1 to {}", groups, kMaxGroups));
  if (experts % groups != 0) {
    return usage(fmt::format("groups = {} do not divide experts = {}; choose a divisor", groups, experts));
  }
  if (topk_groups < 1 || topk_groups > groups) {
    return usage(fmt::format("topk_groups = {}, expected 1 to groups = {}", topk_groups, groups));
  }
  const int per_group = experts / groups;
  if (topk_groups * per_group < topk) {
    return usage(fmt::format("topk_groups = {} of {} experts each hold fewer than topk = {} experts; raise topk_groups",
                             topk_groups, per_group, topk));
  }
  if (groups > 1 && config.group_score == GroupScore::kTopTwoSum && per_group < 2) {
    return usage(fmt::format("groups = {} of one expert each have no two best to sum; use fewer groups", groups));
  }
  return {};
}

}  // namespace

Result<void> validate(const RouterConfig& config) {
  if (config.experts < 1 || config.experts > kMaxExperts) {
    return usage(fmt::format("experts = {}, expected 1 to {}", config.experts, kMaxExperts));
  }
  if (config.topk < 1 || config.topk > kMaxTopK) {
    return usage(fmt::format("topk = {}, expected 1 to {}", config.topk, kMaxTopK));
  }
  if (config.topk > config.experts) {
    return usage(fmt::format("topk = {} exceeds experts = {}; lower topk", config.topk, config.experts));
  }
  if (!std::isfinite(config.scale)) return usage(fmt::format("scale = {}, expected a finite number", config.scale));
  return validate_groups(config);
}

Result<void> check_arguments(const RouterConfig& config, MatrixView<const float> logits, std::span<const float> bias) {
  MOETAX_TRY(validate(config));
  if (logits.cols != config.experts) {
    return usage(fmt::format("logits have {} columns, expected experts = {}", logits.cols, config.experts));
  }
  if (!bias.empty() && bias.size() != static_cast<std::size_t>(config.experts)) {
    return usage(fmt::format("bias has {} values, expected none or experts = {}", bias.size(), config.experts));
  }
  for (std::size_t e = 0; e < bias.size(); ++e) {
    if (std::isfinite(bias[e])) continue;
    return fail(ErrorCode::kBadInput,
                fmt::format("router: bias of expert {} is {}, expected a finite number; check the model", e, bias[e]));
  }
  return {};
}

Unexpected report_bad_logit(MatrixView<const float> logits, std::int64_t begin, std::int64_t first_token) {
  std::int64_t i = begin * logits.cols;
  while (std::isfinite(logits(i / logits.cols, i % logits.cols))) ++i;
  const std::int64_t token = i / logits.cols, expert = i % logits.cols;
  return fail(ErrorCode::kBadInput,
              fmt::format("router: logit of token {}, expert {} is {}, expected a finite number; check the hidden "
                          "states and the router's weights",
                          first_token + token, expert, logits(token, expert)));
}

Result<void> route(const RouterConfig& config, MatrixView<const float> logits, std::span<const float> bias, int threads,
                   RoutingTable& out, std::int64_t first_token) {
  MOETAX_TRY(check_arguments(config, logits, bias));
  out.resize(logits.rows, config.topk);
  const RouteJob job{config, logits, bias, out.expert(), out.weight()};
  std::atomic<std::int64_t> bad_block = logits.rows;
  parallel_for(logits.rows, threads, kTokenGrain, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t reached = route_tokens(job, begin, end);
    if (reached < end) keep_smaller(bad_block, reached);
  });
  if (bad_block < logits.rows) return report_bad_logit(logits, bad_block, first_token);
  return {};
}

const char* route_isa() {
  return kernels_isa();
}

}  // namespace moetax
