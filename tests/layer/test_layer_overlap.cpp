// Forwards in parts: the bits of the whole, whatever the parts; and errors that reach everybody.
#include <gtest/gtest.h>

#include "layer/oracle.h"

namespace moetax::testing {
namespace {

class LayerOverlap : public ::testing::TestWithParam<int> {};

void expect_same_bits(LayerRun run, int parts) {
  const LayerResult whole = run_layer(run);
  ASSERT_TRUE(whole.errors.empty()) << whole.errors[0].message;
  run.overlap = parts;
  run.steps = 3;  // buffers are used again
  const LayerResult in_parts = run_layer(run);
  ASSERT_TRUE(in_parts.errors.empty()) << in_parts.errors[0].message;
  EXPECT_EQ(in_parts.out, whole.out);
}

TEST_P(LayerOverlap, KeepsTheBits) {
  for (const DType dtype : {DType::kBf16, DType::kFp32}) {
    for (const int ranks : {1, 2, 4}) {
      const std::vector<std::int64_t> tokens(static_cast<std::size_t>(ranks), 48 / ranks);
      expect_same_bits({.ranks = ranks, .tokens_per_rank = tokens, .config = deepseek_v2_like(dtype)}, GetParam());
      expect_same_bits({.ranks = ranks, .tokens_per_rank = tokens, .config = gpt_oss_like(dtype)}, GetParam());
    }
  }
}

TEST_P(LayerOverlap, KeepsTheBitsOfUnequalAndEmptyRanks) {
  expect_same_bits({.ranks = 4, .tokens_per_rank = {1, 0, 70, 3}, .config = deepseek_v3_like(DType::kBf16)},
                   GetParam());
}

TEST_P(LayerOverlap, KeepsTheBitsBetweenNodes) {
  for (const ExchangeAlgorithm algorithm : {ExchangeAlgorithm::kFlat, ExchangeAlgorithm::kRing}) {
    expect_same_bits({.ranks = 4,
                      .tokens_per_rank = {20, 21, 5, 30},
                      .config = deepseek_v2_like(DType::kBf16),
                      .ranks_per_node = 2,
                      .algorithm = algorithm},
                     GetParam());
  }
}

INSTANTIATE_TEST_SUITE_P(Parts, LayerOverlap, ::testing::Values(2, 3, 8));

TEST(LayerOverlapErrors, NothingIsKeptForABackward) {
  const LayerResult result = run_layer({.ranks = 2,
                                        .tokens_per_rank = {4, 4},
                                        .config = deepseek_v2_like(DType::kFp32),
                                        .overlap = 2,
                                        .backward = true});
  ASSERT_FALSE(result.errors.empty());
  EXPECT_NE(result.errors[0].message.find("keeps nothing for a backward"), std::string::npos);
}

TEST(LayerOverlapErrors, ABadRouteOfOneRankEndsAll) {
  RoutingTable given;
  const LayerConfig config = deepseek_v2_like(DType::kFp32);
  given.resize(16, config.router.topk);
  for (std::int64_t t = 0; t < 16; ++t) {
    for (int k = 0; k < config.router.topk; ++k) given.expert()(t, k) = k;
  }
  given.expert()(13, 0) = 10000;  // of rank 1, in its second part
  const LayerResult result =
      run_layer({.ranks = 2, .tokens_per_rank = {8, 8}, .config = config, .overlap = 2, .given = &given});
  EXPECT_EQ(result.errors.size(), 2u);
  for (const Error& error : result.errors) EXPECT_NE(error.message.find("10000"), std::string::npos) << error.message;
}

TEST(LayerOverlapErrors, PartsOutOfRange) {
  for (const int parts : {0, 65}) {
    const LayerResult result =
        run_layer({.ranks = 1, .tokens_per_rank = {4}, .config = deepseek_v2_like(DType::kFp32), .overlap = parts});
    ASSERT_FALSE(result.errors.empty());
    EXPECT_NE(result.errors[0].message.find("possible are 1 to 64 parts"), std::string::npos);
  }
}

}  // namespace
}  // namespace moetax::testing
