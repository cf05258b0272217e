#include <cmath>

#include "route/reference.h"
#include "route/router_fixture.h"

namespace moetax {
namespace {

struct Gradient {
  std::vector<float> d_weight, d_logits;
};

Gradient backward(const Problem& problem, const RoutingTable& table, int threads = 1) {
  const auto tokens = problem.tokens;
  const int experts = problem.config.experts, topk = problem.config.topk;
  Gradient gradient{std::vector<float>(tokens * topk), std::vector<float>(tokens * experts, 123.0f)};
  const RandomStream random(17, 3);
  for (std::size_t i = 0; i < gradient.d_weight.size(); ++i) gradient.d_weight[i] = random.normal(i);
  route_backward(problem.config, problem.logits(), table, {gradient.d_weight.data(), tokens, topk}, threads,
                 {gradient.d_logits.data(), tokens, experts});
  return gradient;
}

// sum_k d_weight[k] weight[k] as a function of the token's logits, the choice held fixed.
double loss(const RouterConfig& config, const std::vector<double>& logits, std::span<const std::int32_t> chosen,
            const float* d_weight) {
  double sum = 0;
  const std::vector<double> weight = reference_weights(config, logits, chosen);
  for (std::size_t k = 0; k < weight.size(); ++k) sum += d_weight[k] * weight[k];
  return sum;
}

void expect_finite_differences(const Problem& problem, const RoutingTable& table, std::int64_t token) {
  const RouterConfig& config = problem.config;
  const Gradient gradient = backward(problem, table);
  const auto row = problem.logits().row_span(token);
  const float* d_weight = &gradient.d_weight[token * config.topk];
  for (int e = 0; e < config.experts; ++e) {
    constexpr double kStep = 1e-4;
    std::vector<double> up(row.begin(), row.end()), down = up;
    up[e] += kStep;
    down[e] -= kStep;
    const auto chosen = table.expert().row_span(token);
    const double slope = (loss(config, up, chosen, d_weight) - loss(config, down, chosen, d_weight)) / (2 * kStep);
    EXPECT_NEAR(gradient.d_logits[token * config.experts + e], slope, 1e-6 * config.scale) << "expert " << e;
  }
}

class RouterBackward : public EachIsa {};
MOETAX_INSTANTIATE_EACH_ISA(RouterBackward);

TEST_P(RouterBackward, AgreesWithFiniteDifferences) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Problem problem = random_problem(seed, 1.0f);
    RoutingTable table;
    ASSERT_TRUE(route(problem.config, problem.logits(), problem.bias, 1, table));
    if (problem.tokens > 0) expect_finite_differences(problem, table, problem.tokens - 1);
  }
}

TEST_P(RouterBackward, AgreesWithFiniteDifferencesOnPublishedModels) {
  for (const RouterConfig& config : {kMixtral, kQwen3, kDeepSeekV2Lite, kDeepSeekV2, kDeepSeekV3}) {
    const Problem problem = make_problem(config, 3, true, 1.0f, 4);
    RoutingTable table;
    ASSERT_TRUE(route(config, problem.logits(), problem.bias, 1, table));
    expect_finite_differences(problem, table, 2);
  }
}

// A recorded route need not hold the best experts, nor weights that belong to these logits.
TEST_P(RouterBackward, FollowsTheTableNotTheLogits) {
  for (const RouterConfig& config : {kQwen3, kDeepSeekV2Lite, kDeepSeekV3}) {
    const Problem problem = make_problem(config, 1, false, 1.0f, 4);
    RoutingTable table;
    table.resize(1, config.topk);
    for (int k = 0; k < config.topk; ++k) table.expert()(0, k) = (k * 37 + 5) % config.experts;
    expect_finite_differences(problem, table, 0);
  }
}

TEST_P(RouterBackward, IsFiniteForLargeLogits) {
  for (const RouterConfig& base : {kQwen3, kDeepSeekV2Lite, kDeepSeekV3}) {
    for (const bool renormalize : {false, true}) {
      for (const float shift : {0.0f, -1e4f, 1e4f}) {
        RouterConfig config = base;
        config.renormalize = renormalize;
        Problem problem = make_problem(config, 33, false, 100.0f, 4);
        for (float& x : problem.values) x += shift;
        RoutingTable table;
        ASSERT_TRUE(route(config, problem.logits(), {}, 1, table));
        for (const float d : backward(problem, table).d_logits) ASSERT_TRUE(std::isfinite(d));
      }
    }
  }
}

TEST_P(RouterBackward, DoesNotDependOnThreads) {
  for (const RouterConfig& config : {kDeepSeekV2Lite, kDeepSeekV3}) {
    const Problem problem = make_problem(config, 300, true, 1.0f, 4);
    RoutingTable table;
    ASSERT_TRUE(route(config, problem.logits(), problem.bias, 1, table));
    const Gradient one = backward(problem, table, 1);
    EXPECT_EQ(one.d_logits, backward(problem, table, 2).d_logits);
    EXPECT_EQ(one.d_logits, backward(problem, table, 3).d_logits);
  }
}

}  // namespace
}  // namespace moetax
