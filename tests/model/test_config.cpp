#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "moetax/model/shape.h"
#include "shared_data.h"

namespace moetax {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

Result<ModelShape> parse(std::string_view text) {
  return parse_model_config(text, "config.json");
}

// Parses a small valid Qwen3 configuration with `change` at its end; of two equal keys JSON readers keep the last.
Result<ModelShape> parse_with(const std::string& change) {
  return parse(R"({"model_type": "qwen3_moe", "hidden_size": 64, "moe_intermediate_size": 32, "num_experts": 16,
                   "num_experts_per_tok": 4, "num_hidden_layers": 6, "norm_topk_prob": true)" +
               (change.empty() ? "" : ", " + change) + "}");
}

void expect_error(const Result<ModelShape>& shape, ErrorCode code, std::initializer_list<const char*> parts) {
  ASSERT_FALSE(shape);
  EXPECT_EQ(shape.error().code, code) << shape.error().message;
  for (const char* part : parts) EXPECT_THAT(shape.error().message, HasSubstr(part));
  EXPECT_THAT(shape.error().message, AllOf(StartsWith("config.json: "), Not(HasSubstr("\n"))));
}

void expect_bad(const Result<ModelShape>& shape, std::initializer_list<const char*> parts) {
  expect_error(shape, ErrorCode::kBadInput, parts);
}

void expect_unsupported(const Result<ModelShape>& shape, std::initializer_list<const char*> parts) {
  expect_error(shape, ErrorCode::kUnavailable, parts);
}

void expect_same_layer(const ModelShape& a, const ModelShape& b) {
  EXPECT_EQ(a.hidden, b.hidden);
  EXPECT_EQ(a.inter, b.inter);
  EXPECT_EQ(a.shared_inter, b.shared_inter);
  EXPECT_EQ(a.router.experts, b.router.experts);
  EXPECT_EQ(a.router.topk, b.router.topk);
  EXPECT_EQ(a.router.score, b.router.score);
  EXPECT_EQ(a.router.renormalize, b.router.renormalize);
  EXPECT_EQ(a.router.scale, b.router.scale);
  EXPECT_EQ(a.router.groups, b.router.groups);
  EXPECT_EQ(a.router.topk_groups, b.router.topk_groups);
  EXPECT_TRUE(a.router.groups == 1 || a.router.group_score == b.router.group_score);
  EXPECT_EQ(a.router_bias, b.router_bias);
  EXPECT_EQ(a.selection_bias, b.selection_bias);
  EXPECT_EQ(a.activation, b.activation);
  EXPECT_EQ(a.clamp_limit, b.clamp_limit);
  EXPECT_EQ(a.expert_bias, b.expert_bias);
  EXPECT_EQ(a.layers, b.layers);
  EXPECT_EQ(a.moe_layers, b.moe_layers);
}

TEST(ModelConfig, ReadsTheKeysOfEachFamily) {
  const auto qwen = parse_with("");
  ASSERT_TRUE(qwen) << qwen.error().message;
  EXPECT_EQ(qwen->hidden, 64);
  EXPECT_EQ(qwen->inter, 32);
  EXPECT_EQ(qwen->shared_inter, 0);
  EXPECT_EQ(qwen->router.experts, 16);
  EXPECT_EQ(qwen->router.topk, 4);
  EXPECT_EQ(qwen->router.score, Score::kSoftmax);
  EXPECT_TRUE(qwen->router.renormalize);
  EXPECT_EQ(qwen->layers, 6);
  EXPECT_EQ(qwen->moe_layers, 6);

  const auto mixtral = parse(R"({"model_type": "mixtral", "hidden_size": 64, "intermediate_size": 96,
      "num_local_experts": 8, "num_experts_per_token": 2})");
  ASSERT_TRUE(mixtral) << mixtral.error().message;
  EXPECT_EQ(mixtral->inter, 96);
  EXPECT_TRUE(mixtral->router.renormalize);
  EXPECT_EQ(mixtral->layers, 0);

  const auto nested = parse(R"({"model_type": "x", "text_config": {"model_type": "qwen3_vl_moe_text", "hidden_size": 64,
      "moe_intermediate_size": 32, "num_experts": 16, "top_k_experts": 4, "norm_topk_prob": true}})");
  ASSERT_TRUE(nested) << nested.error().message;
  EXPECT_EQ(nested->router.topk, 4);

  const auto ffn = parse(R"({"model_type": "dbrx", "d_model": 64, "n_layers": 4, "ffn_config": {"moe_top_k": 2,
      "ffn_act_fn": {"name": "silu"}, "ffn_hidden_size": 48, "moe_num_experts": 8, "moe_normalize_expert_weights": 1}})");
  ASSERT_TRUE(ffn) << ffn.error().message;
  EXPECT_EQ(ffn->inter, 48);
  EXPECT_EQ(ffn->router.topk, 2);
  EXPECT_TRUE(ffn->router.renormalize);
  EXPECT_EQ(ffn->moe_layers, 4);
}

TEST(ModelConfig, ReadsDeepSeeksOwnKeys) {
  const auto v3 = parse(R"({"dim": 7168, "inter_dim": 18432, "moe_inter_dim": 2048, "n_layers": 61, "n_dense_layers": 3,
      "n_routed_experts": 256, "n_shared_experts": 1, "n_activated_experts": 8, "n_expert_groups": 8,
      "n_limited_groups": 4, "route_scale": 2.5, "score_func": "sigmoid"})");
  ASSERT_TRUE(v3) << v3.error().message;
  expect_same_layer(*v3, *preset("deepseek-v3"));
}

TEST(ModelConfig, GroupsFollowTheMethod) {
  const std::string groups = R"("n_group": 4, "topk_group": 2, "topk_method": )";
  const auto limited = parse_with(groups + R"("group_limited_greedy")");
  ASSERT_TRUE(limited);
  EXPECT_EQ(limited->router.groups, 4);
  EXPECT_EQ(limited->router.topk_groups, 2);
  EXPECT_EQ(limited->router.group_score, GroupScore::kMax);
  EXPECT_FALSE(limited->selection_bias);
  const auto biased = parse_with(groups + R"("noaux_tc")");
  ASSERT_TRUE(biased);
  EXPECT_EQ(biased->router.group_score, GroupScore::kTopTwoSum);
  EXPECT_TRUE(biased->selection_bias);
  const auto greedy = parse_with(groups + R"("greedy")");
  ASSERT_TRUE(greedy);
  EXPECT_EQ(greedy->router.groups, 1);
}

TEST(ModelConfig, CountsMoeLayersTheWayEachFamilyNamesDenseOnes) {
  const auto layers = [](const std::string& change) {
    const auto shape = parse_with(change);
    return shape ? shape->moe_layers : -1;
  };
  EXPECT_EQ(layers(R"("first_k_dense_replace": 2)"), 4);
  EXPECT_EQ(layers(R"("first_k_dense_replace": 1, "moe_layer_freq": 2)"), 2);  // 2 and 4
  EXPECT_EQ(layers(R"("decoder_sparse_step": 2)"), 3);                         // 1, 3 and 5
  EXPECT_EQ(layers(R"("decoder_sparse_step": 2, "mlp_only_layers": [1, 2, 99])"), 2);
  EXPECT_EQ(layers(R"("moe_layer_freq": [0, 1, 1, false, true, 1])"), 4);
  EXPECT_EQ(layers(R"("interleave_moe_layer_step": 3)"), 2);
  expect_bad(parse_with(R"("moe_layer_freq": [0, 1])"), {"moe_layer_freq", "2 layers of 6"});
  expect_bad(parse_with(R"("moe_layer_freq": [0, 1, 1, 2, 1, 1])"), {"moe_layer_freq[3] is 2"});
  expect_bad(parse_with(R"("decoder_sparse_step": 0)"), {"decoder_sparse_step is 0"});
  expect_bad(parse_with(R"("first_k_dense_replace": 6)"), {"not one of its 6 layers has experts"});
}

TEST(ModelConfig, NullsAndMissingOptionalKeysAreFine) {
  const auto shape = parse_with(R"("n_shared_experts": null, "routed_scaling_factor": null, "n_group": null,
      "mlp_only_layers": null, "hidden_act": null, "num_hidden_layers": null, "text_config": null, "ffn_config": 3)");
  ASSERT_TRUE(shape) << shape.error().message;
  EXPECT_EQ(shape->router.scale, 1.0f);
  EXPECT_EQ(shape->layers, 0);
}

TEST(ModelConfig, NamesTheModelAfterItsFile) {
  const auto name = [](const std::string& origin) {
    return parse_model_config(R"({"model_type": "mixtral", "hidden_size": 64, "intermediate_size": 96,
                                  "num_local_experts": 8, "num_experts_per_tok": 2})",
                              origin)
        ->name;
  };
  EXPECT_EQ(name("/models/Mixtral-8x7B-v0.1/config.json"), "Mixtral-8x7B-v0.1");
  EXPECT_EQ(name("Mixtral-8x7B-v0.1/config.json"), "Mixtral-8x7B-v0.1");
  EXPECT_EQ(name("/models/mixtral-8x22b.json"), "mixtral-8x22b");
  EXPECT_EQ(name("config.json"), "mixtral");
  EXPECT_EQ(name("./config.json"), "mixtral");
  EXPECT_EQ(name("/config.json"), "mixtral");
  EXPECT_EQ(name(""), "mixtral");
}

TEST(ModelConfig, SaysWhatIsNotSupported) {
  expect_unsupported(parse_with(R"("scoring_func": "sqrtsoftplus")"), {"scoring_func 'sqrtsoftplus'"});
  expect_unsupported(parse_with(R"("topk_method": "magic")"), {"topk_method 'magic'"});
  expect_unsupported(parse_with(R"("hidden_act": "gelu_pytorch_tanh")"), {"activation 'gelu_pytorch_tanh'"});
  expect_unsupported(parse_with(R"("hidden_activation": "gelu")"), {"activation 'gelu'"});
  expect_unsupported(parse_with(R"("ffn_config": {"ffn_act_fn": {"name": "gelu"}})"), {"activation 'gelu'"});
  expect_unsupported(parse_with(R"("num_hash_layers": 3)"), {"3 layers routed by a hash"});
  expect_unsupported(parse_with(R"("swiglu_limit": 10.0)"), {"swiglu_limit"});
  expect_unsupported(parse_with(R"("shared_expert_intermediate_size": 512)"), {"shared expert", "sigmoid gate"});
  expect_unsupported(parse_with(R"("model_type": "qwen2_moe")"), {"shared expert", "sigmoid gate"});
  expect_unsupported(parse_with(R"("model_type": "llama4")"), {"input", "sigmoid gate"});
  expect_unsupported(parse_with(R"("moe_normalize_expert_weights": 2)"), {"moe_normalize_expert_weights"});
  // A family that is not known needs a file that describes its router.
  EXPECT_TRUE(parse_with(R"("model_type": "brand_new")"));
  expect_unsupported(parse_with(R"("model_type": "brand_new", "norm_topk_prob": null)"),
                     {"'brand_new'", "norm_topk_prob"});
  expect_unsupported(parse_with(R"("model_type": null, "norm_topk_prob": null)"), {"no model_type"});
  // Values from the file cannot break the line.
  expect_unsupported(parse_with(R"("scoring_func": "a\nb\u0007c\u00e9")"), {"'a?b?c?"});
  EXPECT_LT(parse_with(R"("hidden_act": ")" + std::string(100'000, 'x') + '"').error().message.size(), 200u);
}

TEST(ModelConfig, NamesTheKeyWithABadValue) {
  expect_bad(parse_with(R"("hidden_size": "64")"), {"hidden_size is '64'", "whole number from 1"});
  expect_bad(parse_with(R"("hidden_size": -64)"), {"hidden_size is -64"});
  expect_bad(parse_with(R"("hidden_size": 0)"), {"hidden_size is 0"});
  expect_bad(parse_with(R"("hidden_size": 64.0)"), {"hidden_size is 64, expected a whole number"});
  expect_bad(parse_with(R"("hidden_size": 1e18)"), {"hidden_size is 1e+18"});
  expect_bad(parse_with(R"("hidden_size": 9223372036854775807)"), {"hidden_size is 9223372036854775807"});
  expect_bad(parse_with(R"("hidden_size": 18446744073709551615)"), {"hidden_size is 18446744073709551615"});
  expect_bad(parse_with(R"("hidden_size": [64])"), {"hidden_size is of type array"});
  expect_bad(parse_with(R"("hidden_size": null)"), {"hidden_size, d_model, dim"});
  expect_bad(parse_with(R"("moe_intermediate_size": true)"), {"moe_intermediate_size is of type boolean"});
  expect_bad(parse_with(R"("num_experts": 100000)"), {"num_experts is 100000", "4096"});
  expect_bad(parse_with(R"("num_experts_per_tok": 17)"), {"num_experts_per_tok is 17, more than num_experts = 16"});
  expect_bad(parse_with(R"("num_experts_per_tok": 33)"), {"num_experts_per_tok is 33", "32"});
  expect_bad(parse_with(R"("num_experts_per_tok": null)"), {"num_experts_per_tok", "moe_top_k"});
  expect_bad(parse_with(R"("norm_topk_prob": 1)"), {"norm_topk_prob is 1, expected true or false"});
  expect_bad(parse_with(R"("routed_scaling_factor": "2.5")"), {"routed_scaling_factor is '2.5'"});
  expect_bad(parse_with(R"("routed_scaling_factor": -1)"), {"routed_scaling_factor is -1"});
  expect_bad(parse_with(R"("scoring_func": 1)"), {"scoring_func is 1, expected a string"});
  expect_bad(parse_with(R"("hidden_act": {})"), {"hidden_act is of type object"});
  expect_bad(parse_with(R"("mlp_only_layers": 3)"), {"mlp_only_layers is 3, expected a list"});
  expect_bad(parse_with(R"("n_shared_experts": -1)"), {"n_shared_experts is -1"});
  const std::string limited = R"("topk_method": "group_limited_greedy", )";
  expect_bad(parse_with(limited + R"("n_group": 5)"), {"n_group is 5", "16 experts"});
  expect_bad(parse_with(limited + R"("n_group": 4, "topk_group": 5)"), {"topk_group is 5, more than n_group = 4"});
  expect_bad(parse_with(limited + R"("n_group": 8, "topk_group": 1)"), {"topk_group is 1", "fewer than 4"});
  expect_bad(parse(R"({"text_config": {"num_experts": 8, "hidden_size": -1}})"), {"text_config.hidden_size is -1"});
  expect_bad(parse(R"({"ffn_config": {"moe_num_experts": 0, "ffn_hidden_size": 8, "moe_top_k": 1}, "d_model": 4})"),
             {"ffn_config.moe_num_experts is 0"});
}

TEST(ModelConfig, RefusesWhatIsNoConfiguration) {
  expect_bad(parse(""), {"byte 0", "too early"});
  expect_bad(parse(R"({"hidden_size": 64, "num_exp)"), {"byte 28", "too early"});
  expect_bad(parse(R"({"hidden_size": 64; })"), {"byte 19", "not JSON"});
  expect_bad(parse("{\"a\": \"\xff\"}"), {"byte 8", "not JSON"});
  expect_bad(parse(R"({"hidden_size": 1e999})"), {"number"});
  expect_bad(parse("[1, 2]"), {"object", "array"});
  expect_bad(parse("null"), {"object", "null"});
  expect_bad(parse(R"({"hidden_size": 64})"), {"not a mixture of experts", "num_local_experts"});
  expect_bad(parse(R"({"num_experts": null, "text_config": []})"), {"not a mixture of experts"});
  expect_bad(parse(std::string(1'000'000, '[')), {"byte 65", "nested"});
  std::string bomb;
  for (int i = 0; i < 100'000; ++i) bomb += R"({"text_config":)";
  expect_bad(parse(bomb), {"nested"});
  // Brackets inside strings do not nest.
  EXPECT_TRUE(
      parse_with(R"("note": "\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[")"));
}

TEST(ModelConfig, RefusesFilesThatCannotBeRead) {
  const std::string folder = testing::TempDir();
  EXPECT_THAT(read_model_config(folder + "/no-such-file").error().message, HasSubstr("No such file"));
  EXPECT_THAT(read_model_config(folder).error().message, HasSubstr("directory"));
  const std::string packed = folder + "/packed_config.json";
  std::ofstream(packed) << "\x1f\x8b\x08";
  EXPECT_THAT(read_model_config(packed).error().message, AllOf(HasSubstr("gzip"), HasSubstr(packed)));
  std::ofstream(packed) << R"({"model_type": "mixtral", "hidden_size": 64, "intermediate_size": 96,
      "num_local_experts": 8, "num_experts_per_tok": 2})";
  EXPECT_TRUE(read_model_config(packed));
  std::filesystem::remove(packed);
  EXPECT_EQ(read_model_config("/dev/zero").error().code, ErrorCode::kBadInput);
}

// ---- real files -----------------------------------------------------------------------------------------------------

Result<ModelShape> read_shared(const std::string& file) {
  return read_model_config(shared_data() + "/configs/" + file);
}

TEST(RealModelConfigs, EqualThePresets) {
  MOETAX_NEEDS_SHARED_DATA();
  const std::vector<std::pair<const char*, const char*>> pairs = {
      {"deepseek-native_config_16B.json", "deepseek-v2-lite"},
      {"deepseek-native_config_236B.json", "deepseek-v2"},
      {"deepseek-ai--DeepSeek-V3_config.json", "deepseek-v3"},
      {"mistralai--Mixtral-8x7B-v0.1_config.json", "mixtral-8x7b"},
      {"Qwen--Qwen3-30B-A3B_config.json", "qwen3-30b-a3b"},
      {"Qwen--Qwen3-VL-30B-A3B-Instruct_config.json", "qwen3-30b-a3b"},
      {"allenai--OLMoE-1B-7B-0125-Instruct_config.json", "olmoe-1b-7b"},
      {"openai--gpt-oss-20b_config.json", "gpt-oss-20b"}};
  for (const auto& [file, name] : pairs) {
    SCOPED_TRACE(file);
    const auto shape = read_shared(file);
    ASSERT_TRUE(shape) << shape.error().message;
    expect_same_layer(*shape, *preset(name));
  }
}

TEST(RealModelConfigs, OfOtherModelsAreRead) {
  MOETAX_NEEDS_SHARED_DATA();
  ModelShape kimi = *preset("deepseek-v3");
  kimi.router.experts = 384;
  kimi.router.groups = kimi.router.topk_groups = 1;
  kimi.router.scale = 2.827f;
  kimi.moe_layers = 60;
  const auto kimi_file = read_shared("moonshotai--Kimi-K2-Instruct_config.json");
  ASSERT_TRUE(kimi_file) << kimi_file.error().message;
  expect_same_layer(*kimi_file, kimi);

  ModelShape glm = *preset("deepseek-v3");
  glm.hidden = 6144;
  glm.router.groups = glm.router.topk_groups = 1;
  glm.layers = 78;
  glm.moe_layers = 75;
  const auto glm_file = read_shared("zai-org--GLM-5_config.json");
  ASSERT_TRUE(glm_file) << glm_file.error().message;
  expect_same_layer(*glm_file, glm);

  ModelShape mimo = *preset("deepseek-v3");
  mimo.hidden = 4096;
  mimo.shared_inter = 0;
  mimo.router.groups = mimo.router.topk_groups = 1;
  mimo.router.scale = 1.0f;
  mimo.layers = 48;
  mimo.moe_layers = 47;
  const auto mimo_file = read_shared("XiaomiMiMo--MiMo-V2-Flash_config.json");
  ASSERT_TRUE(mimo_file) << mimo_file.error().message;
  expect_same_layer(*mimo_file, mimo);

  ModelShape dbrx = *preset("mixtral-8x7b");
  dbrx.hidden = 6144;
  dbrx.inter = 3584;
  dbrx.router.experts = 16;
  dbrx.router.topk = 4;
  dbrx.layers = dbrx.moe_layers = 40;
  const auto dbrx_file = read_shared("databricks--dbrx-base_config.FIXTURE-ABRIDGED.json");
  ASSERT_TRUE(dbrx_file) << dbrx_file.error().message;
  expect_same_layer(*dbrx_file, dbrx);
}

TEST(RealModelConfigs, OfUnsupportedModelsSayWhy) {
  MOETAX_NEEDS_SHARED_DATA();
  const std::vector<std::pair<const char*, std::vector<const char*>>> reasons = {
      {"meta-llama--Llama-4-Scout-17B-16E-Instruct_config.json", {"input", "sigmoid gate"}},
      {"google--gemma-4-26B-A4B_config.json", {"'gelu_pytorch_tanh'"}},
      {"deepseek-ai--DeepSeek-V4-Flash_config.json", {"'sqrtsoftplus'", "3 layers routed by a hash"}},
      {"Qwen--Qwen1.5-MoE-A2.7B-Chat-GPTQ-Int4_config.PARTIAL.json", {"shared expert", "sigmoid gate"}}};
  for (const auto& [file, parts] : reasons) {
    const auto shape = read_shared(file);
    ASSERT_FALSE(shape) << file;
    EXPECT_EQ(shape.error().code, ErrorCode::kUnavailable);
    EXPECT_THAT(shape.error().message, AllOf(HasSubstr(file), Not(HasSubstr("\n"))));
    for (const char* part : parts) EXPECT_THAT(shape.error().message, HasSubstr(part));
  }
}

// What the layer cannot run is described all the same.
TEST(RealModelConfigs, AreAllDescribed) {
  MOETAX_NEEDS_SHARED_DATA();
  struct Expected {
    const char* file;
    int experts, topk, groups, layers, moe_layers;
    std::int64_t hidden, inter, shared;
    double billions, active;  // parameters, published; 0: the file lacks what they follow from
  };
  const std::vector<Expected> all = {
      {"Qwen--Qwen1.5-MoE-A2.7B-Chat-GPTQ-Int4_config.PARTIAL.json", 60, 4, 1, 24, 24, 2048, 1408, 5632, 0, 0},
      {"Qwen--Qwen3-30B-A3B_config.json", 128, 8, 1, 48, 48, 2048, 768, 0, 30.5, 3.3},
      {"Qwen--Qwen3-VL-30B-A3B-Instruct_config.json", 128, 8, 1, 48, 48, 2048, 768, 0, 30.5, 3.3},
      {"XiaomiMiMo--MiMo-V2-Flash_config.json", 256, 8, 1, 48, 47, 4096, 2048, 0, 309, 15},
      {"allenai--OLMoE-1B-7B-0125-Instruct_config.json", 64, 8, 1, 16, 16, 2048, 1024, 0, 6.9, 1.3},
      {"databricks--dbrx-base_config.FIXTURE-ABRIDGED.json", 16, 4, 1, 40, 40, 6144, 3584, 0, 0, 0},
      {"deepseek-ai--DeepSeek-V3_config.json", 256, 8, 8, 61, 58, 7168, 2048, 2048, 671, 37},
      {"deepseek-ai--DeepSeek-V4-Flash_config.json", 256, 6, 1, 43, 43, 4096, 2048, 2048, 0, 0},
      {"deepseek-native_config_16B.json", 64, 6, 1, 27, 26, 2048, 1408, 2816, 15.7, 2.4},
      {"deepseek-native_config_236B.json", 160, 6, 8, 60, 59, 5120, 1536, 3072, 236, 21},
      {"google--gemma-4-26B-A4B_config.json", 128, 8, 1, 30, 30, 2816, 704, 2112, 26, 4},
      {"meta-llama--Llama-4-Scout-17B-16E-Instruct_config.json", 16, 1, 1, 48, 48, 5120, 8192, 8192, 109, 17},
      {"mistralai--Mixtral-8x7B-v0.1_config.json", 8, 2, 1, 32, 32, 4096, 14336, 0, 46.7, 12.9},
      {"moonshotai--Kimi-K2-Instruct_config.json", 384, 8, 1, 61, 60, 7168, 2048, 2048, 1026, 32},
      {"openai--gpt-oss-20b_config.json", 32, 4, 1, 24, 24, 2880, 2880, 0, 20.9, 3.6},
      {"zai-org--GLM-5_config.json", 256, 8, 1, 78, 75, 6144, 2048, 2048, 744, 40}};
  for (const Expected& expected : all) {
    SCOPED_TRACE(expected.file);
    std::ifstream file(shared_data() + "/configs/" + expected.file);
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    const auto model = describe_model(text, expected.file);
    ASSERT_TRUE(model) << model.error().message;
    const ModelShape& shape = model->shape;
    EXPECT_EQ(shape.router.experts, expected.experts);
    EXPECT_EQ(shape.router.topk, expected.topk);
    EXPECT_EQ(shape.router.groups, expected.groups);
    EXPECT_EQ(shape.layers, expected.layers);
    EXPECT_EQ(shape.moe_layers, expected.moe_layers);
    EXPECT_EQ(shape.hidden, expected.hidden);
    EXPECT_EQ(shape.inter, expected.inter);
    EXPECT_EQ(shape.shared_inter, expected.shared);
    if (expected.billions == 0) continue;
    EXPECT_NEAR(model->total_elements() * 1e-9 / expected.billions, 1, 0.05);
    EXPECT_NEAR(model->active_elements() * 1e-9 / expected.active, 1, 0.25);
  }
}

TEST(RealModelConfigs, AreAllReadOrRefusedWithAReason) {
  MOETAX_NEEDS_SHARED_DATA();
  int read = 0, refused = 0;
  for (const auto& entry : std::filesystem::directory_iterator(shared_data() + "/configs")) {
    const auto shape = read_model_config(entry.path().string());
    if (shape) {
      ++read;
      EXPECT_TRUE(validate(shape->router)) << entry.path();
      EXPECT_THAT(entry.path().filename().string(), HasSubstr(shape->name));
    } else {
      ++refused;
      EXPECT_EQ(shape.error().code, ErrorCode::kUnavailable) << shape.error().message;
    }
  }
  EXPECT_GE(read, 12);
  EXPECT_LE(refused, 4);
}

}  // namespace
}  // namespace moetax
