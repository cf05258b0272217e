// The fused router against the straightforward way: scores in two passes over a token's logits, then std::partial_sort.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "harness.h"
#include "moetax/base/random.h"
#include "moetax/route/router.h"

namespace moetax::bench {
namespace {

constexpr std::int64_t kTokens = 4096;

// What a careful programmer writes first; reuses its memory from token to token.
class TwoPassRouter {
 public:
  explicit TwoPassRouter(const RouterConfig& config)
      : config_(config), score_(config.experts), value_(config.experts) {}

  void run(MatrixView<const float> logits, std::span<const float> bias, RoutingTable& out) {
    for (std::int64_t t = 0; t < logits.rows; ++t) {
      if (config_.score == Score::kSoftmax) {
        softmax(logits.row(t));
      } else {
        sigmoid(logits.row(t));
      }
      for (int e = 0; e < config_.experts; ++e) value_[e] = {score_[e] + (bias.empty() ? 0.0f : bias[e]), -e};
      if (config_.groups > 1) close_groups();
      std::partial_sort(value_.begin(), value_.begin() + config_.topk, value_.end(), std::greater<>());
      write(out.expert().row(t), out.weight().row(t));
    }
  }

 private:
  using Value = std::pair<float, int>;  // and minus the expert, so that equal values go to the lower one

  void softmax(const float* logits) {
    const float top = *std::max_element(logits, logits + config_.experts);
    float sum = 0;
    for (int e = 0; e < config_.experts; ++e) sum += score_[e] = std::exp(logits[e] - top);
    for (float& score : score_) score /= sum;
  }

  void sigmoid(const float* logits) {
    for (int e = 0; e < config_.experts; ++e) score_[e] = 1.0f / (1.0f + std::exp(-logits[e]));
  }

  void close_groups() {
    const int per_group = config_.experts / config_.groups;
    group_.resize(config_.groups);
    for (int g = 0; g < config_.groups; ++g) {
      float first = -std::numeric_limits<float>::infinity(), second = first;
      for (int e = g * per_group; e < (g + 1) * per_group; ++e) {
        const float x = value_[e].first;
        if (x > first) {
          second = std::exchange(first, x);
        } else if (x > second) {
          second = x;
        }
      }
      group_[g] = {first + second, -g};
    }
    std::partial_sort(group_.begin(), group_.begin() + config_.topk_groups, group_.end(), std::greater<>());
    for (int k = config_.topk_groups; k < config_.groups; ++k) {
      const int first = -group_[k].second * per_group;
      for (int e = first; e < first + per_group; ++e) value_[e].first = -std::numeric_limits<float>::infinity();
    }
  }

  void write(std::int32_t* expert, float* weight) const {
    float sum = 0;
    for (int k = 0; k < config_.topk; ++k) {
      expert[k] = -value_[k].second;
      weight[k] = score_[expert[k]];
      sum += weight[k];
    }
    for (int k = 0; k < config_.topk; ++k) weight[k] *= config_.scale / (config_.renormalize ? sum : 1.0f);
  }

  RouterConfig config_;
  std::vector<float> score_;
  std::vector<Value> value_, group_;
};

std::vector<float> random_normals(std::int64_t count, std::uint64_t stream, float deviation) {
  const RandomStream random(1, stream);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = random.normal(i) * deviation;
  return values;
}

void compare(const std::string& name, const RouterConfig& config, bool with_bias, const std::string& reach) {
  const auto values = random_normals(kTokens * config.experts, 0, 1.0f);
  const auto bias = random_normals(with_bias ? config.experts : 0, 1, 0.05f);
  const MatrixView<const float> logits(values.data(), kTokens, config.experts);
  RoutingTable ours, theirs;
  theirs.resize(kTokens, config.topk);
  TwoPassRouter two_pass(config);
  bool failed = false;
  const auto run_ours = [&] { failed |= !route(config, logits, bias, 1, ours).has_value(); };
  const auto run_theirs = [&] { two_pass.run(logits, bias, theirs); };
  const auto timings = interleave({{"fused", run_ours}, {"two-pass", run_theirs}});
  if (failed) {
    std::fprintf(stderr, "%s: the router refused its input\n", name.c_str());
    return;
  }
  print_row(fmt::format("router {} E={} K={} T={} {}", name, config.experts, config.topk, kTokens, route_isa()),
            timings[0], "two-pass + partial_sort", timings[1], timings[1].median_us / timings[0].median_us, reach);
}

}  // namespace
}  // namespace moetax::bench

int main() {
  using namespace moetax;
  using bench::compare;
  const RouterConfig v3{.experts = 256,
                        .topk = 8,
                        .score = Score::kSigmoid,
                        .renormalize = true,
                        .scale = 2.5f,
                        .groups = 8,
                        .topk_groups = 4,
                        .group_score = GroupScore::kTopTwoSum};
  compare("softmax", {.experts = 64, .topk = 6}, false, "times as fast; reach 6");
  compare("V3 groups", v3, true, "times as fast; reach 6");
  for (const int experts : {8, 16, 32, 64, 128, 256, 512, 1024}) {
    compare("softmax", {.experts = experts, .topk = 8, .renormalize = true}, false, "times as fast; sweep");
  }
}
