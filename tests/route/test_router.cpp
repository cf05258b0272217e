#include <gmock/gmock.h>

#include <cfloat>
#include <cmath>
#include <limits>

#include "route/choice.h"
#include "route/router_fixture.h"

namespace moetax {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

RoutingTable routed(const Problem& problem, int threads = 1) {
  RoutingTable table;
  const auto result = route(problem.config, problem.logits(), problem.bias, threads, table);
  EXPECT_TRUE(result) << result.error().message;
  return table;
}

RoutingTable oracle(const Problem& problem) {
  RoutingTable table;
  const auto result = route_reference(problem.config, problem.logits(), problem.bias, table);
  EXPECT_TRUE(result) << result.error().message;
  return table;
}

std::vector<std::int32_t> experts_of(const RoutingTable& table, std::int64_t token) {
  const auto row = table.expert().row_span(token);
  return {row.begin(), row.end()};
}

std::vector<float> weights_of(const RoutingTable& table, std::int64_t token) {
  const auto row = table.weight().row_span(token);
  return {row.begin(), row.end()};
}

// The smallest difference that is not zero between neighbours of the first `count` + 1 values in descending order.
double smallest_gap(std::vector<double> values, std::size_t count) {
  std::sort(values.begin(), values.end(), std::greater<>());
  double gap = DBL_MAX;
  for (std::size_t i = 0; i < count && i + 1 < values.size(); ++i) {
    if (values[i] > values[i + 1]) gap = std::min(gap, values[i] - values[i + 1]);
  }
  return gap;
}

std::vector<double> choice_values(const Problem& problem, std::int64_t token) {
  const auto row = problem.logits().row_span(token);
  std::vector<double> value(row.begin(), row.end());
  double sum = 0;
  for (double& x : value) sum += x = std::exp(x);
  for (std::size_t e = 0; e < value.size(); ++e) {
    value[e] = problem.config.score == Score::kSoftmax ? value[e] / sum : value[e] / (1 + value[e]);
    if (!problem.bias.empty()) value[e] += problem.bias[e];
  }
  return value;
}

// Whether fp32 scores must lead to the same choice as exact ones: no two compared values closer than fp32 rounds.
bool choice_is_clear(const Problem& problem, std::int64_t token) {
  const RouterConfig& config = problem.config;
  if (compares_logits(config, problem.bias)) return true;
  const std::vector<double> value = choice_values(problem, token);
  const std::ptrdiff_t per_group = config.experts / config.groups;
  std::vector<double> group_score;
  for (int g = 0; g < config.groups; ++g) {
    std::vector<double> members(value.begin() + g * per_group, value.begin() + (g + 1) * per_group);
    std::sort(members.begin(), members.end(), std::greater<>());
    group_score.push_back(config.group_score == GroupScore::kMax ? members[0] : members[0] + members[1]);
  }
  const double gap = std::min(smallest_gap(value, value.size()), smallest_gap(group_score, group_score.size()));
  return gap > 1e-6;
}

void expect_weights_near(const Problem& problem, const RoutingTable& got, const RoutingTable& want, std::int64_t t) {
  for (int k = 0; k < problem.config.topk; ++k) {
    const double w = want.weight()(t, k);
    EXPECT_NEAR(got.weight()(t, k), w, 2e-6 * std::abs(w) + FLT_MIN * problem.config.scale)
        << "token " << t << " k " << k;
  }
}

// Compares all tokens whose choice is clear and returns their number.
int expect_like_oracle(const Problem& problem) {
  const RoutingTable got = routed(problem), want = oracle(problem);
  EXPECT_EQ(got.tokens(), problem.tokens);
  EXPECT_EQ(got.topk(), problem.config.topk);
  int clear = 0;
  for (std::int64_t t = 0; t < problem.tokens; ++t) {
    if (!choice_is_clear(problem, t)) continue;
    ++clear;
    EXPECT_EQ(experts_of(got, t), experts_of(want, t)) << "token " << t;
    if (experts_of(got, t) == experts_of(want, t)) expect_weights_near(problem, got, want, t);
  }
  return clear;
}

class Router : public EachIsa {};
MOETAX_INSTANTIATE_EACH_ISA(Router);

TEST_P(Router, AgreesWithTheReferenceOnRandomShapes) {
  std::int64_t tokens = 0, clear = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Problem problem = random_problem(seed, 1.5f);
    ASSERT_TRUE(validate(problem.config));
    tokens += problem.tokens;
    clear += expect_like_oracle(problem);
  }
  EXPECT_GT(clear, tokens * 3 / 4);
}

TEST_P(Router, AgreesWithTheReferenceOnPublishedModels) {
  for (const RouterConfig& config : {kMixtral, kQwen3, kDeepSeekV2Lite, kDeepSeekV2, kDeepSeekV3}) {
    for (const bool with_bias : {false, true}) {
      EXPECT_GT(expect_like_oracle(make_problem(config, 1000, with_bias, 1.0f, 5)), 900) << config.experts;
    }
  }
}

// Sums over many experts keep their accuracy.
TEST_P(Router, KeepsItsAccuracyAtTheLimits) {
  const RouterConfig most{.experts = kMaxExperts, .topk = kMaxTopK, .groups = kMaxGroups, .topk_groups = 5};
  EXPECT_EQ(expect_like_oracle(make_problem(most, 20, false, 2.0f, 3)), 20);
}

TEST_P(Router, GivesTiesToTheLowerExpert) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Problem problem = random_problem(seed, 1.0f);
    problem.bias.clear();
    for (float& x : problem.values) x = std::round(x);  // about seven distinct values
    EXPECT_EQ(expect_like_oracle(problem), problem.tokens);
  }
}

TEST_P(Router, ChoosesTheFirstExpertsWhenAllAreEqual) {
  for (const float logit : {0.0f, -0.0f, 5.0f, -80.0f, 3e38f, -3e38f}) {
    Problem softmax = make_problem({.experts = 60, .topk = 4}, 17, false, 0, 0);
    Problem v3 = make_problem(kDeepSeekV3, 17, false, 0, 0);
    std::fill(softmax.values.begin(), softmax.values.end(), logit);
    std::fill(v3.values.begin(), v3.values.end(), logit);
    for (std::int64_t t = 0; t < 17; ++t) {
      EXPECT_THAT(experts_of(routed(softmax), t), ElementsAre(0, 1, 2, 3));
      EXPECT_THAT(weights_of(routed(softmax), t), testing::Each(testing::FloatEq(1.0f / 60)));
      EXPECT_THAT(experts_of(routed(v3), t), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
      EXPECT_THAT(weights_of(routed(v3), t), testing::Each(testing::FloatEq(2.5f / 8)));
    }
  }
}

// Scores that overflow or vanish in fp32 still give finite weights, and shares of vanishing scores stay right.
TEST_P(Router, StandsLargeLogits) {
  for (const float size : {60.0f, 300.0f, 1e4f, 1e38f}) {
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
      SCOPED_TRACE(testing::Message() << "size " << size << " seed " << seed);
      Problem problem = random_problem(seed, size);
      problem.bias.clear();
      problem.config.group_score = GroupScore::kMax;
      EXPECT_EQ(expect_like_oracle(problem), problem.tokens);
    }
  }
  Problem negative = make_problem(kDeepSeekV3, 16, false, 0.5f, 1);
  negative.config.groups = negative.config.topk_groups = 1;
  for (float& x : negative.values) x -= 500.0f;
  expect_like_oracle(negative);
}

TEST_P(Router, LetsTheBiasChooseButNotWeigh) {
  Problem problem = make_problem({.experts = 4, .topk = 2, .score = Score::kSigmoid}, 1, true, 0, 0);
  std::copy_n(std::vector{0.0f, 1.0f, 2.0f, -1.0f}.begin(), 4, problem.values.begin());
  problem.bias = {0.0f, 0.0f, -1.0f, 1.0f};
  const RoutingTable table = routed(problem);
  EXPECT_THAT(experts_of(table, 0), ElementsAre(3, 1));
  EXPECT_THAT(weights_of(table, 0),
              ElementsAre(testing::FloatEq(1 / (1 + std::exp(1.0f))), testing::FloatEq(1 / (1 + std::exp(-1.0f)))));
}

TEST_P(Router, SumsTheTwoBestOfAGroupOrTakesTheBest) {
  Problem problem = make_problem({.experts = 4, .topk = 1, .score = Score::kSigmoid, .groups = 2}, 1, false, 0, 0);
  std::copy_n(std::vector{3.0f, -3.0f, 2.0f, 2.0f}.begin(), 4, problem.values.begin());
  EXPECT_THAT(experts_of(routed(problem), 0), ElementsAre(0));
  problem.config.group_score = GroupScore::kTopTwoSum;
  EXPECT_THAT(experts_of(routed(problem), 0), ElementsAre(2));
}

// The same bits whatever the threads and the neighbours of a token.
TEST_P(Router, DependsOnNeitherThreadsNorNeighbours) {
  for (const RouterConfig& config : {kDeepSeekV2Lite, kDeepSeekV2, kDeepSeekV3}) {
    const Problem problem = make_problem(config, 333, true, 1.0f, 11);
    const RoutingTable all = routed(problem);
    for (const int threads : {2, 3}) {
      const RoutingTable split = routed(problem, threads);
      for (std::int64_t t = 0; t < problem.tokens; ++t) {
        ASSERT_EQ(experts_of(all, t), experts_of(split, t));
        ASSERT_EQ(weights_of(all, t), weights_of(split, t));
      }
    }
    for (std::int64_t t = 0; t < problem.tokens; t += 7) {
      RoutingTable alone;
      const MatrixView<const float> row(problem.logits().row(t), 1, config.experts);
      ASSERT_TRUE(route(config, row, problem.bias, 1, alone));
      ASSERT_EQ(experts_of(all, t), experts_of(alone, 0));
      ASSERT_EQ(weights_of(all, t), weights_of(alone, 0));
    }
  }
}

TEST_P(Router, NamesTheFirstLogitThatIsNotFinite) {
  for (const float bad : {kNan, kInf, -kInf}) {
    for (const std::int64_t token : {0, 15, 16, 130, 199}) {
      for (const std::int64_t expert : {0, 1, 30, 59}) {
        Problem problem = make_problem({.experts = 60, .topk = 4}, 200, false, 1.0f, 2);
        problem.logits()(token, expert) = bad;
        problem.logits()(199, 59) = kNan;
        RoutingTable table;
        for (const auto& result : {route(problem.config, problem.logits(), {}, 2, table, 1000),
                                   route_reference(problem.config, problem.logits(), {}, table, 1000)}) {
          ASSERT_FALSE(result);
          EXPECT_EQ(result.error().code, ErrorCode::kBadInput);
          EXPECT_THAT(result.error().message,
                      HasSubstr("token " + std::to_string(1000 + token) + ", expert " + std::to_string(expert)));
        }
      }
    }
  }
}

TEST_P(Router, LooksOnlyAtItsOwnColumns) {
  Problem problem = make_problem(kDeepSeekV2Lite, 20, false, 1.0f, 2);
  const RoutingTable clean = routed(problem);
  for (std::int64_t t = 0; t < problem.tokens; ++t) problem.values[t * problem.stride() + 64] = kNan;
  EXPECT_EQ(experts_of(routed(problem), 19), experts_of(clean, 19));
}

TEST_P(Router, ReusesTheTable) {
  const Problem large = make_problem(kQwen3, 100, false, 1.0f, 1), small = make_problem(kQwen3, 50, false, 1.0f, 1);
  RoutingTable table;
  ASSERT_TRUE(route(kQwen3, large.logits(), {}, 1, table));
  const auto* storage = table.weight().data;
  ASSERT_TRUE(route(kQwen3, small.logits(), {}, 1, table));
  ASSERT_TRUE(route(kQwen3, large.logits(), {}, 1, table));
  EXPECT_EQ(table.weight().data, storage);
}

std::string refusal(const RouterConfig& config) {
  const auto result = validate(config);
  if (result) return "accepted";
  EXPECT_EQ(result.error().code, ErrorCode::kUsage);
  return result.error().message;
}

TEST(RouterConfig, IsRefusedWithTheFieldToChange) {
  for (const RouterConfig& config : {kMixtral, kQwen3, kDeepSeekV2Lite, kDeepSeekV2, kDeepSeekV3}) {
    EXPECT_EQ(refusal(config), "accepted");
  }
  EXPECT_THAT(refusal({.experts = 0, .topk = 1}), HasSubstr("experts = 0"));
  EXPECT_THAT(refusal({.experts = kMaxExperts + 1, .topk = 1}), HasSubstr("experts = 4097"));
  EXPECT_THAT(refusal({.experts = 8, .topk = 0}), HasSubstr("topk = 0"));
  EXPECT_THAT(refusal({.experts = 64, .topk = 33}), HasSubstr("topk = 33"));
  EXPECT_THAT(refusal({.experts = 8, .topk = 9}), HasSubstr("topk = 9 exceeds experts = 8"));
  EXPECT_THAT(refusal({.experts = 8, .topk = 2, .scale = kNan}), HasSubstr("scale = nan"));
  EXPECT_THAT(refusal({.experts = 8, .topk = 2, .groups = 0}), HasSubstr("groups = 0"));
  EXPECT_THAT(refusal({.experts = 130, .topk = 2, .groups = 65}), HasSubstr("groups = 65"));
  EXPECT_THAT(refusal({.experts = 8, .topk = 2, .groups = 3}), AllOf(HasSubstr("groups = 3"), HasSubstr("divide")));
  EXPECT_THAT(refusal({.experts = 8, .topk = 2, .groups = 4, .topk_groups = 5}), HasSubstr("topk_groups = 5"));
  EXPECT_THAT(refusal({.experts = 8, .topk = 2, .groups = 4, .topk_groups = 0}), HasSubstr("topk_groups = 0"));
  EXPECT_THAT(refusal({.experts = 16, .topk = 5, .groups = 4, .topk_groups = 1}), HasSubstr("raise topk_groups"));
  EXPECT_THAT(refusal({.experts = 4, .topk = 1, .groups = 4, .topk_groups = 2, .group_score = GroupScore::kTopTwoSum}),
              HasSubstr("one expert each"));
}

TEST(RouterArguments, AreRefusedWhenTheyDisagree) {
  Problem problem = make_problem(kMixtral, 3, true, 1.0f, 1);
  RoutingTable table;
  const auto code = [&](MatrixView<const float> logits, std::span<const float> bias) {
    const auto result = route(problem.config, logits, bias, 1, table);
    return result ? "accepted" : result.error().message;
  };
  EXPECT_EQ(code(problem.logits(), problem.bias), "accepted");
  EXPECT_THAT(code({problem.values.data(), 3, 7}, {}), HasSubstr("7 columns"));
  EXPECT_THAT(code(problem.logits(), std::span(problem.bias).first(7)), HasSubstr("7 values"));
  problem.bias[5] = kInf;
  EXPECT_THAT(code(problem.logits(), problem.bias), HasSubstr("expert 5 is inf"));
  problem.config.topk = 9;
  EXPECT_THAT(code(problem.logits(), {}), HasSubstr("topk = 9"));
}

}  // namespace
}  // namespace moetax
