// Gradients over ranks: expert parallelism alone, with replicas, recomputed, accumulated.
#include <gtest/gtest.h>

#include <algorithm>

#include "layer/oracle.h"

namespace moetax::testing {
namespace {

class LayerGroups : public ::testing::TestWithParam<DType> {
 protected:
  LayerRun run(int ranks, std::int64_t tokens_each) const {
    LayerRun r{.ranks = ranks, .config = deepseek_v3_like(GetParam()), .backward = true};
    r.tokens_per_rank.assign(static_cast<std::size_t>(ranks), tokens_each);
    return r;
  }
  // Sums of the same terms in another order: a few units in the last place of fp32.
  static constexpr double kRounding = 2e-6;
};

TEST_P(LayerGroups, OneAndFourRanksGiveTheSameBitsWhereNothingCrossesRanks) {
  const LayerResult one = run_layer(run(1, 64)), four = run_layer(run(4, 16));
  ASSERT_TRUE(one.errors.empty() && four.errors.empty());
  EXPECT_EQ(four.d_hidden, one.d_hidden);
  EXPECT_EQ(four.gradients.w13, one.gradients.w13);
  EXPECT_EQ(four.gradients.w2, one.gradients.w2);
  EXPECT_LT(relative_error(four.gradients.router, one.gradients.router), kRounding);
  EXPECT_LT(relative_error(four.gradients.shared_w13, one.gradients.shared_w13), kRounding);
  EXPECT_LT(relative_error(four.gradients.shared_w2, one.gradients.shared_w2), kRounding);
}

TEST_P(LayerGroups, ReplicasSumTheirExpertsGradients) {
  LayerRun two_replicas = run(4, 16);
  two_replicas.ep_size = 2;
  const LayerResult one = run_layer(run(1, 64)), replicated = run_layer(two_replicas);
  ASSERT_TRUE(one.errors.empty() && replicated.errors.empty());
  EXPECT_EQ(replicated.out, one.out);
  EXPECT_EQ(replicated.d_hidden, one.d_hidden);
  EXPECT_LT(relative_error(replicated.gradients.w13, one.gradients.w13), kRounding);
  EXPECT_LT(relative_error(replicated.gradients.w2, one.gradients.w2), kRounding);
  EXPECT_LT(relative_error(replicated.gradients.router, one.gradients.router), kRounding);
  EXPECT_LT(relative_error(replicated.gradients.shared_w13, one.gradients.shared_w13), kRounding);
  // Both replicas hold the same sums, bit for bit.
  EXPECT_EQ(replicated.per_rank[0].w13, replicated.per_rank[2].w13);
  EXPECT_EQ(replicated.per_rank[1].w2, replicated.per_rank[3].w2);
  EXPECT_EQ(replicated.per_rank[0].router, replicated.per_rank[3].router);
}

TEST_P(LayerGroups, RecomputedActivationsGiveTheSameBits) {
  LayerRun recomputed = run(2, 24);
  recomputed.activations = Activations::kRecompute;
  const LayerResult kept = run_layer(run(2, 24)), again = run_layer(recomputed);
  ASSERT_TRUE(kept.errors.empty() && again.errors.empty());
  EXPECT_EQ(again.d_hidden, kept.d_hidden);
  EXPECT_EQ(again.gradients.w13, kept.gradients.w13);
  EXPECT_EQ(again.gradients.w2, kept.gradients.w2);
  EXPECT_EQ(again.gradients.router, kept.gradients.router);
  EXPECT_EQ(again.gradients.shared_w13, kept.gradients.shared_w13);
}

TEST_P(LayerGroups, AccumulatingTwiceDoubles) {
  for (const int ep_size : {0, 2}) {
    LayerRun once = run(4, 8), twice = run(4, 8);
    once.ep_size = twice.ep_size = ep_size;
    twice.steps = 2;
    const LayerResult a = run_layer(once), b = run_layer(twice);
    ASSERT_TRUE(a.errors.empty() && b.errors.empty());
    const auto doubled = [](std::vector<float> values) {
      for (float& v : values) v *= 2;
      return values;
    };
    EXPECT_LT(relative_error(b.gradients.w13, doubled(a.gradients.w13)), kRounding);
    EXPECT_LT(relative_error(b.gradients.w2, doubled(a.gradients.w2)), kRounding);
    EXPECT_LT(relative_error(b.gradients.router, doubled(a.gradients.router)), kRounding);
    EXPECT_LT(relative_error(b.gradients.shared_w2, doubled(a.gradients.shared_w2)), kRounding);
  }
}

TEST_P(LayerGroups, ExpertsWithoutTokensHaveZeroGradients) {
  LayerRun r = run(2, 4);
  RoutingTable given;
  given.resize(8, r.config.router.topk);
  for (std::int64_t t = 0; t < 8; ++t) {
    for (int k = 0; k < r.config.router.topk; ++k) {
      given.expert()(t, k) = k;
      given.weight()(t, k) = 0.25f;
    }
  }
  r.given = &given;
  const LayerResult real = run_layer(r);
  ASSERT_TRUE(real.errors.empty());
  const std::size_t each = real.gradients.w13.size() / 16;
  for (std::size_t e = 0; e < 16; ++e) {
    const auto part = std::span(real.gradients.w13).subspan(e * each, each);
    const bool zero = std::ranges::all_of(part, [](float v) { return v == 0.0f; });
    EXPECT_EQ(zero, e >= 4) << "expert " << e;
  }
}

TEST_P(LayerGroups, AReplicaSizeThatDoesNotDivideIsRefused) {
  LayerRun r = run(3, 4);
  r.ep_size = 2;
  const LayerResult real = run_layer(r);
  ASSERT_EQ(real.errors.size(), 3u);
  EXPECT_EQ(real.errors[0].code, ErrorCode::kUsage);
}

INSTANTIATE_TEST_SUITE_P(DTypes, LayerGroups, ::testing::Values(DType::kFp32, DType::kBf16),
                         [](const auto& instance) { return std::string(to_string(instance.param)); });

}  // namespace
}  // namespace moetax::testing
