// What the tests of the router share: random problems, and every test once per instruction set of this machine.
#pragma once

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "moetax/base/random.h"
#include "moetax/route/router.h"

namespace moetax {

// Runs each TEST_P with the kernels of one instruction set, and makes sure that these are the ones that run.
class EachIsa : public testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override {
    hwy::SetSupportedTargetsForTest(GetParam());
    hwy::GetChosenTarget().DeInit();
    ASSERT_STREQ(route_isa(), hwy::TargetName(GetParam()));
  }
  void TearDown() override {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().DeInit();
  }
};

inline std::string isa_name(const testing::TestParamInfo<std::int64_t>& info) {
  return hwy::TargetName(info.param);
}

#define MOETAX_INSTANTIATE_EACH_ISA(suite) \
  INSTANTIATE_TEST_SUITE_P(Isa, suite, testing::ValuesIn(hwy::SupportedAndGeneratedTargets()), isa_name)

// Small sequential random numbers for shapes.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : random_(seed, 7) {}
  int between(int low, int high) {
    return low + static_cast<int>(random_.bits(count_++) % static_cast<std::uint64_t>(high - low + 1));
  }
  bool coin() { return between(0, 1) == 1; }
  template <class T>
  T pick(std::initializer_list<T> from) {
    return from.begin()[between(0, static_cast<int>(from.size()) - 1)];
  }

 private:
  RandomStream random_;
  std::uint64_t count_ = 0;
};

// A router configuration with its inputs. Rows are a little apart, as in a slice of a wider matrix.
struct Problem {
  RouterConfig config;
  std::int64_t tokens = 0;
  std::vector<float> values;
  std::vector<float> bias;

  std::int64_t stride() const { return config.experts + 3; }
  MatrixView<const float> logits() const { return {values.data(), tokens, config.experts, stride()}; }
  MatrixView<float> logits() { return {values.data(), tokens, config.experts, stride()}; }
};

inline Problem make_problem(const RouterConfig& config, std::int64_t tokens, bool with_bias, float deviation,
                            std::uint64_t seed) {
  Problem problem{config, tokens, {}, {}};
  const RandomStream random(seed, 0), bias_random(seed, 1);
  problem.values.resize(static_cast<std::size_t>(tokens * problem.stride()));
  for (std::size_t i = 0; i < problem.values.size(); ++i) problem.values[i] = deviation * random.normal(i);
  for (int e = 0; with_bias && e < config.experts; ++e) problem.bias.push_back(0.1f * bias_random.normal(e));
  return problem;
}

inline RouterConfig random_config(Dice& dice) {
  RouterConfig config;
  config.groups = dice.coin() ? 1 : dice.pick({2, 3, 4, 8, 16});
  const int per_group = dice.between(2, 512 / config.groups);
  config.experts = config.groups * per_group;
  config.topk_groups = dice.between(1, config.groups);
  config.topk = dice.between(1, std::min(dice.coin() ? 8 : kMaxTopK, config.topk_groups * per_group));
  config.score = dice.pick({Score::kSoftmax, Score::kSigmoid});
  config.group_score = dice.pick({GroupScore::kMax, GroupScore::kTopTwoSum});
  config.renormalize = dice.coin();
  config.scale = dice.pick({1.0f, 2.5f, 16.0f});
  return config;
}

inline Problem random_problem(std::uint64_t seed, float deviation) {
  Dice dice(seed);
  const RouterConfig config = random_config(dice);
  return make_problem(config, dice.pick({0, 1, 7, 15, 16, 17, 40}), dice.coin(), deviation, seed);
}

// The routers of published models.
inline const RouterConfig kMixtral{.experts = 8, .topk = 2, .renormalize = true};
inline const RouterConfig kQwen3{.experts = 128, .topk = 8, .renormalize = true};
inline const RouterConfig kDeepSeekV2Lite{.experts = 64, .topk = 6};
inline const RouterConfig kDeepSeekV2{.experts = 160, .topk = 6, .scale = 16.0f, .groups = 8, .topk_groups = 3};
inline const RouterConfig kDeepSeekV3{.experts = 256,
                                      .topk = 8,
                                      .score = Score::kSigmoid,
                                      .renormalize = true,
                                      .scale = 2.5f,
                                      .groups = 8,
                                      .topk_groups = 4,
                                      .group_score = GroupScore::kTopTwoSum};

}  // namespace moetax
