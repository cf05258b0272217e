#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <mutex>

#include "layer/oracle.h"
#include "moetax/transport/local.h"

namespace moetax::testing {
namespace {

struct Form {
  const char* name;
  LayerConfig (*make)(DType);
};
constexpr Form kForms[] = {{"deepseek_v2", deepseek_v2_like},
                           {"deepseek_v3", deepseek_v3_like},
                           {"mixtral", mixtral_like},
                           {"gpt_oss", gpt_oss_like}};

std::vector<std::int64_t> split_tokens(std::int64_t total, int ranks) {
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(ranks), total / ranks);
  tokens.back() += total % ranks;
  return tokens;
}

class LayerForward : public ::testing::TestWithParam<std::tuple<Form, DType, int>> {};

TEST_P(LayerForward, MatchesTheOracle) {
  const auto [form, dtype, ranks] = GetParam();
  const LayerConfig config = form.make(dtype);
  const LayerResult real = run_layer({.ranks = ranks, .tokens_per_rank = split_tokens(53, ranks), .config = config});
  ASSERT_TRUE(real.errors.empty()) << real.errors[0].message;
  const PlainLayer plain = plain_layer(config, 7, 0);
  const std::vector<double> expected = oracle_forward(plain, doubles(real.hidden), real.routing);
  // fp32: rounding of a few hundred products. bf16: x, [g | u], a, y and out are rounded once each, 2^-9 apiece.
  EXPECT_LT(relative_error(real.out, expected), dtype == DType::kFp32 ? 2e-6 : 8e-3);
}

TEST_P(LayerForward, RoutesAsTheReferenceRouter) {
  const auto [form, dtype, ranks] = GetParam();
  const LayerConfig config = form.make(dtype);
  const LayerResult real = run_layer({.ranks = ranks, .tokens_per_rank = split_tokens(53, ranks), .config = config});
  ASSERT_TRUE(real.errors.empty()) << real.errors[0].message;
  const RoutingTable expected = oracle_routing(plain_layer(config, 7, 0), doubles(real.hidden));
  std::int64_t different = 0;
  for (std::int64_t t = 0; t < expected.tokens(); ++t) {
    different += !std::ranges::equal(expected.expert().row_span(t), real.routing.expert().row_span(t));
  }
  // Logits differ from double precision in the last bits: a near-tie may fall the other way, not more.
  EXPECT_LE(different, 1);
}

INSTANTIATE_TEST_SUITE_P(Forms, LayerForward,
                         ::testing::Combine(::testing::ValuesIn(kForms), ::testing::Values(DType::kFp32, DType::kBf16),
                                            ::testing::Values(1, 2, 3, 4)),
                         [](const auto& instance) {
                           return std::string(std::get<0>(instance.param).name) + "_" +
                                  std::string(to_string(std::get<1>(instance.param))) + "_ranks" +
                                  std::to_string(std::get<2>(instance.param));
                         });

class LayerBits : public ::testing::TestWithParam<std::tuple<Form, DType>> {};

TEST_P(LayerBits, AreTheSameForAnyNumberOfRanks) {
  const auto [form, dtype] = GetParam();
  const LayerConfig config = form.make(dtype);
  const LayerResult one = run_layer({.ranks = 1, .tokens_per_rank = {96}, .config = config});
  ASSERT_TRUE(one.errors.empty()) << one.errors[0].message;
  for (const int ranks : {2, 4, 8}) {
    const LayerResult many = run_layer({.ranks = ranks, .tokens_per_rank = split_tokens(96, ranks), .config = config});
    ASSERT_TRUE(many.errors.empty()) << many.errors[0].message;
    EXPECT_EQ(many.out, one.out) << ranks << " ranks";
  }
}

TEST_P(LayerBits, AreTheSameForUnequalAndEmptyRanks) {
  const auto [form, dtype] = GetParam();
  const LayerConfig config = form.make(dtype);
  const LayerResult one = run_layer({.ranks = 1, .tokens_per_rank = {40}, .config = config});
  const LayerResult four = run_layer({.ranks = 4, .tokens_per_rank = {0, 33, 0, 7}, .config = config});
  ASSERT_TRUE(one.errors.empty() && four.errors.empty());
  EXPECT_EQ(four.out, one.out);
}

INSTANTIATE_TEST_SUITE_P(Forms, LayerBits,
                         ::testing::Combine(::testing::ValuesIn(kForms), ::testing::Values(DType::kFp32, DType::kBf16)),
                         [](const auto& instance) {
                           return std::string(std::get<0>(instance.param).name) + "_" +
                                  std::string(to_string(std::get<1>(instance.param)));
                         });

TEST(LayerForwardEdge, SelectionBiasMovesTheChoiceNotTheWeights) {
  const LayerConfig config = deepseek_v3_like(DType::kFp32);
  std::vector<float> bias(16, 0.0f);
  for (const int e : {0, 1, 4, 5}) bias[static_cast<std::size_t>(e)] = 10.0f;  // two experts of two groups
  const LayerResult real =
      run_layer({.ranks = 2, .tokens_per_rank = {20, 20}, .config = config, .selection_bias = bias});
  ASSERT_TRUE(real.errors.empty()) << real.errors[0].message;
  for (std::int64_t t = 0; t < 40; ++t) {
    auto chosen = real.routing.expert().row_span(t);
    std::vector<std::int32_t> sorted(chosen.begin(), chosen.end());
    std::sort(sorted.begin(), sorted.end());
    EXPECT_EQ(sorted, (std::vector<std::int32_t>{0, 1, 4, 5}));
  }
  const PlainLayer plain = plain_layer(config, 7, 0);
  EXPECT_LT(relative_error(real.out, oracle_forward(plain, doubles(real.hidden), real.routing)), 2e-6);
}

TEST(LayerForwardEdge, AllTokensToOneRanksExperts) {
  const LayerConfig config = mixtral_like(DType::kBf16);
  RoutingTable given;
  given.resize(64, 2);
  for (std::int64_t t = 0; t < 64; ++t) {
    given.expert()(t, 0) = 7;
    given.expert()(t, 1) = 6;
    given.weight()(t, 0) = 0.75f;
    given.weight()(t, 1) = 0.25f;
  }
  const LayerResult one = run_layer({.ranks = 1, .tokens_per_rank = {64}, .config = config, .given = &given});
  const LayerResult four =
      run_layer({.ranks = 4, .tokens_per_rank = {16, 16, 16, 16}, .config = config, .given = &given});
  ASSERT_TRUE(one.errors.empty() && four.errors.empty());
  EXPECT_EQ(four.out, one.out);
  EXPECT_EQ(four.routing.expert()(63, 0), 7);
}

TEST(LayerForwardEdge, MoreRanksThanExperts) {
  LayerConfig config = mixtral_like(DType::kFp32);
  config.router.experts = 3;
  const LayerResult one = run_layer({.ranks = 1, .tokens_per_rank = {25}, .config = config});
  const LayerResult five = run_layer({.ranks = 5, .tokens_per_rank = {5, 5, 5, 5, 5}, .config = config});
  ASSERT_TRUE(one.errors.empty() && five.errors.empty());
  EXPECT_EQ(five.out, one.out);
}

TEST(LayerForwardEdge, NanInATokenIsNamedByItsGlobalIndexOnEveryRank) {
  const auto poison = [](Rows hidden, std::int64_t first) {
    if (first <= 13 && 13 < first + hidden.rows) {
      set_element(hidden, 13 - first, 5, std::numeric_limits<float>::quiet_NaN());
    }
  };
  const LayerResult real =
      run_layer({.ranks = 2, .tokens_per_rank = {10, 10}, .config = mixtral_like(DType::kFp32), .edit_tokens = poison});
  ASSERT_EQ(real.errors.size(), 2u);
  bool bad_input = false;
  for (const Error& error : real.errors) {
    EXPECT_NE(error.message.find("token 13"), std::string::npos) << error.message;
    bad_input |= error.code == ErrorCode::kBadInput;
  }
  EXPECT_TRUE(bad_input);
}

TEST(LayerForwardEdge, RanksThatDisagreeOnTheShapeAreShownBoth) {
  // run_layer gives all ranks one configuration, so this uses the exchange's check through different token widths.
  std::vector<std::string> messages;
  std::mutex mutex;
  const auto outcomes = run_threads({.ranks = 2}, [&](Communicator& world) {
    const std::int64_t hidden = world.rank() == 0 ? 64 : 128;
    const auto made =
        ExpertParallel::create(world, {.max_tokens = 4, .hidden = hidden, .experts = 8, .topk = 2, .deadline_s = 5});
    const std::lock_guard lock(mutex);
    if (!made) messages.push_back(made.error().message);
    return made ? 0 : 1;
  });
  ASSERT_TRUE(outcomes);
  ASSERT_EQ(messages.size(), 2u);
  for (const std::string& message : messages) {
    EXPECT_NE(message.find("64"), std::string::npos) << message;
    EXPECT_NE(message.find("128"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace moetax::testing
