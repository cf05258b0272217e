#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "moetax/model/shape.h"

namespace moetax {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Presets, HaveTheirOwnNameAndAPossibleShape) {
  EXPECT_EQ(preset_names().size(), 8u);
  for (const std::string_view name : preset_names()) {
    SCOPED_TRACE(name);
    const auto shape = preset(name);
    ASSERT_TRUE(shape);
    EXPECT_EQ(shape->name, name);
    EXPECT_TRUE(validate(shape->router)) << validate(shape->router).error().message;
    EXPECT_GT(shape->moe_layers, 0);
    EXPECT_LE(shape->moe_layers, shape->layers);
    EXPECT_EQ(shape->shared_inter % shape->inter, 0);
    EXPECT_EQ(shape->selection_bias, shape->router.score == Score::kSigmoid);
  }
}

// The totals the models' own papers give, less attention, embeddings and dense layers.
TEST(Presets, AddUpToThePublishedSizes) {
  const auto billions = [](std::string_view name) {
    const ModelShape shape = *preset(name);
    return layer_weight_bytes(shape, 1) * shape.moe_layers * 1e-9;
  };
  EXPECT_NEAR(billions("deepseek-moe-16b"), 16.4, 1.2);
  EXPECT_NEAR(billions("deepseek-v2-lite"), 15.7, 1.2);
  EXPECT_NEAR(billions("deepseek-v2"), 236, 12);
  EXPECT_NEAR(billions("deepseek-v3"), 671, 20);
  EXPECT_NEAR(billions("mixtral-8x7b"), 46.7, 2);
  EXPECT_NEAR(billions("qwen3-30b-a3b"), 30.5, 2);
  EXPECT_NEAR(billions("olmoe-1b-7b"), 6.9, 0.6);
  EXPECT_NEAR(billions("gpt-oss-20b"), 20.9, 2);
}

TEST(Presets, OneLayerOfV3In16BitTakes22GB) {
  EXPECT_NEAR(layer_weight_bytes(*preset("deepseek-v3"), 2) * 1e-9, 22.6, 0.1);
}

TEST(Presets, WeightBytesCountEveryMatrixOnce) {
  ModelShape shape;
  shape.hidden = 10;
  shape.inter = 4;
  shape.router.experts = 3;
  EXPECT_EQ(layer_weight_bytes(shape, 1), 3 * (3 * 10 * 4) + 3 * 10);
  shape.shared_inter = 8;
  EXPECT_EQ(layer_weight_bytes(shape, 2), 2 * (3 * (3 * 10 * 4) + 3 * 10 + 3 * 10 * 8));
  shape.expert_bias = shape.router_bias = shape.selection_bias = true;
  EXPECT_EQ(layer_weight_bytes(shape, 1), 3 * (3 * 10 * 4 + 2 * 4 + 10) + 3 * 10 + 3 * 10 * 8 + 2 * 3);
}

TEST(Presets, AnUnknownNameGetsTheNearest) {
  const auto shape = preset("deepsek-v3");
  ASSERT_FALSE(shape);
  EXPECT_EQ(shape.error().code, ErrorCode::kUsage);
  EXPECT_THAT(shape.error().message, AllOf(HasSubstr("deepsek-v3"), HasSubstr("nearest are deepseek-v3, deepseek-v2")));
  EXPECT_THAT(preset("gpt-oss").error().message, HasSubstr("nearest are gpt-oss-20b"));
  EXPECT_THAT(preset("").error().message, HasSubstr("nearest"));
  EXPECT_LT(preset(std::string(100'000, 'x')).error().message.size(), 300u);
}

}  // namespace
}  // namespace moetax
