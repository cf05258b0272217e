// Reads a config.json: finds the object with the experts in it, what its authors call things, and what the file leaves
// to the modelling code of its family.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "model/fields.h"
#include "model/rest.h"
#include "moetax/base/file.h"
#include "moetax/base/text.h"
#include "moetax/model/shape.h"

namespace moetax {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxFileBytes = std::size_t{16} << 20;
constexpr int kMaxDepth = 64;  // real files need five levels
constexpr std::int64_t kMaxLayers = 10'000;

constexpr Fields::Keys kExperts = {"n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts"};
constexpr Fields::Keys kTopK = {"num_experts_per_tok", "num_experts_per_token", "top_k_experts", "experts_per_token",
                                "moe_top_k",           "n_activated_experts"};
constexpr Fields::Keys kGroups = {"n_group", "n_expert_groups"};
constexpr Fields::Keys kTopKGroups = {"topk_group", "n_limited_groups"};
constexpr Fields::Keys kDtype = {"torch_dtype", "dtype"};
constexpr Fields::Keys kScoring = {"scoring_func", "score_func"};

// How the best experts are found (the names are those of topk_method).
enum class Method {
  kGreedy,   // over all experts
  kLimited,  // "group_limited_greedy": in the groups whose best expert is best
  kNoAuxTc,  // "noaux_tc": the same with a selection bias and the sum of two
};

// What the modelling code of a family does where its files say nothing.
struct Family {
  std::string_view model_type;
  Score score;
  bool renormalize;
  Method method;
};

constexpr std::array kFamilies = {
    Family{"deepseek", Score::kSoftmax, false, Method::kGreedy},
    Family{"deepseek_v2", Score::kSoftmax, false, Method::kGreedy},
    Family{"deepseek_v3", Score::kSigmoid, true, Method::kNoAuxTc},
    Family{"deepseek_v32", Score::kSigmoid, true, Method::kNoAuxTc},
    Family{"kimi_k2", Score::kSigmoid, true, Method::kNoAuxTc},
    Family{"glm4_moe", Score::kSigmoid, true, Method::kNoAuxTc},
    Family{"glm_moe_dsa", Score::kSigmoid, true, Method::kNoAuxTc},
    Family{"mimo_v2_flash", Score::kSigmoid, true, Method::kNoAuxTc},
    Family{"qwen3_moe", Score::kSoftmax, false, Method::kGreedy},
    Family{"qwen3_vl_moe", Score::kSoftmax, false, Method::kGreedy},
    Family{"qwen3_vl_moe_text", Score::kSoftmax, false, Method::kGreedy},
    Family{"olmoe", Score::kSoftmax, false, Method::kGreedy},
    Family{"mixtral", Score::kSoftmax, true, Method::kGreedy},
    Family{"dbrx", Score::kSoftmax, true, Method::kGreedy},
    Family{"gpt_oss", Score::kSoftmax, true, Method::kGreedy},
};

struct Unsupported {
  std::string_view model_type;
  std::string_view what;
};

constexpr std::string_view kGatedShared = "a shared expert whose output is multiplied by a sigmoid gate";
constexpr std::string_view kGatedInput = "experts whose input, not output, is multiplied by a sigmoid gate";
constexpr std::array kUnsupported = {
    Unsupported{"llama4", kGatedInput},       Unsupported{"llama4_text", kGatedInput},
    Unsupported{"qwen2_moe", kGatedShared},   Unsupported{"qwen3_next", kGatedShared},
    Unsupported{"qwen3_5_moe", kGatedShared},
};

// One file on its way to a ModelShape.
struct Reading {
  Fields fields;
  std::string model_type;
  ModelShape shape;
  std::vector<std::string> unsupported;  // what the layer cannot do, each as a noun
  std::string dtype;
};

// ---- finding the object ---------------------------------------------------------------------------------------------

// The byte, counted from 1, where brackets nest deeper than kMaxDepth. Checked before parsing so that a hostile file
// costs no memory.
std::optional<std::size_t> find_too_deep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string && c == '\\') ++i;
    if (c == '"') in_string = !in_string;
    if (in_string) continue;
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (depth > kMaxDepth) return i + 1;
  }
  return std::nullopt;
}

Result<json> parse_json(std::string_view text, const std::string& origin) {
  if (const auto at = find_too_deep(text)) {
    return fail(ErrorCode::kBadInput, fmt::format("{}: byte {}: nested deeper than {} levels", origin, *at, kMaxDepth));
  }
  try {
    return json::parse(text);
  } catch (const json::parse_error& error) {
    const std::string_view what = error.byte > text.size() ? "the JSON ends too early" : "not JSON";
    return fail(ErrorCode::kBadInput, fmt::format("{}: byte {}: {}", origin, std::min(error.byte, text.size()), what));
  } catch (const json::exception&) {  // the only other one while parsing is a number out of range
    return fail(ErrorCode::kBadInput, fmt::format("{}: not JSON: a number is too large for a double", origin));
  }
}

// Multimodal models keep their language model in an object of its own.
Result<Reading> find_experts(const json& root, const std::string& origin) {
  if (!root.is_object()) {
    return fail(ErrorCode::kBadInput, fmt::format("{}: expected a JSON object, found {}", origin, root.type_name()));
  }
  Fields top(root, "");
  for (const char* name : {"", "text_config", "language_config"}) {
    const auto nested = root.find(name);
    if (*name && (nested == root.end() || !nested->is_object())) continue;
    Fields fields(*name ? *nested : root, *name ? fmt::format("{}.", name) : "");
    if (!fields.has(kExperts)) continue;
    const auto type = fields.has({"model_type"}) ? fields.find({"model_type"}) : top.find({"model_type"});
    std::string model_type = type && type->value->is_string() ? type->value->get<std::string>() : "";
    Fields& with_dtype = fields.has(kDtype) ? fields : top;
    std::string dtype = with_dtype.word(kDtype, "");
    return Reading{std::move(fields), std::move(model_type), {}, {}, std::move(dtype)};
  }
  return fail(ErrorCode::kBadInput, fmt::format("{}: not a mixture of experts: none of the keys {} is there", origin,
                                                fmt::join(kExperts, ", ")));
}

// ---- sizes ----------------------------------------------------------------------------------------------------------

void read_sizes(Fields& fields, ModelShape& shape) {
  shape.hidden = fields.whole({"hidden_size", "d_model", "dim"}, 1, kMaxWidth);
  shape.inter =
      fields.whole({"moe_intermediate_size", "moe_inter_dim", "ffn_hidden_size", "intermediate_size"}, 1, kMaxWidth);
  shape.shared_inter = shape.inter * fields.whole({"n_shared_experts", "num_shared_experts"}, 0, 1024, 0);
  shape.router.experts = static_cast<int>(fields.whole(kExperts, 1, kMaxExperts));
  shape.router.topk = static_cast<int>(fields.whole(kTopK, 1, kMaxTopK));
  if (shape.router.topk > shape.router.experts) {
    fields.problem(fmt::format("{} is {}, more than {} = {}", fields.name_of(kTopK), shape.router.topk,
                               fields.name_of(kExperts), shape.router.experts));
  }
}

// Layers are MoE layers unless one of the families' ways of naming dense ones says otherwise.
void read_layers(Fields& fields, ModelShape& shape) {
  const auto layers = fields.whole({"num_hidden_layers", "n_layers"}, 1, kMaxLayers, 0);
  const auto first = fields.whole({"first_k_dense_replace", "n_dense_layers"}, 0, kMaxLayers, 0);
  const auto sparse_step = fields.whole({"decoder_sparse_step", "interleave_moe_layer_step"}, 1, kMaxLayers, 1);
  std::vector<char> dense(static_cast<std::size_t>(layers), 0);
  for (const std::int64_t layer : fields.whole_list({"mlp_only_layers"}, 0, kMaxLayers)) {
    if (layer < layers) dense[static_cast<std::size_t>(layer)] = 1;
  }
  const auto frequency = fields.find({"moe_layer_freq"});
  const bool is_list = frequency && frequency->value->is_array();
  const auto listed = is_list ? fields.whole_list({"moe_layer_freq"}, 0, 1) : std::vector<std::int64_t>();
  const auto step = is_list ? 1 : fields.whole({"moe_layer_freq"}, 1, kMaxLayers, 1);
  if (is_list && layers > 0 && static_cast<std::int64_t>(listed.size()) != layers) {
    fields.problem(fmt::format("{} lists {} layers of {}", frequency->key, listed.size(), layers));
    return;
  }
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const auto i = static_cast<std::size_t>(layer);
    const bool moe = layer >= first && layer % step == 0 && (layer + 1) % sparse_step == 0 && !dense[i] &&
                     (!is_list || listed[i] != 0);
    shape.moe_layers += moe ? 1 : 0;
  }
  shape.layers = static_cast<int>(layers);
  if (layers > 0 && shape.moe_layers == 0) fields.problem(fmt::format("not one of its {} layers has experts", layers));
}

// ---- router ---------------------------------------------------------------------------------------------------------

// DeepSeek's own inference code has keys of its own (n_activated_experts) and no model_type.
bool is_native(const Reading& reading) {
  return reading.model_type.empty() && reading.fields.has({"n_activated_experts"});
}

Family find_family(Reading& reading) {
  for (const Family& family : kFamilies) {
    if (family.model_type == reading.model_type) return family;
  }
  if (is_native(reading)) {
    const bool sigmoid = reading.fields.word(kScoring, "softmax") == "sigmoid";
    return {"", sigmoid ? Score::kSigmoid : Score::kSoftmax, sigmoid, sigmoid ? Method::kNoAuxTc : Method::kLimited};
  }
  if (reading.unsupported.empty() && !reading.fields.has({"norm_topk_prob"})) {
    const std::string type =
        reading.model_type.empty() ? "no model_type" : "model_type " + in_quotes(reading.model_type);
    reading.unsupported.push_back(type + ", whose routing the file does not describe (norm_topk_prob)");
  }
  return {"", Score::kSoftmax, false, Method::kGreedy};
}

Score read_score(Reading& reading, const Family& family) {
  const std::string fallback = family.score == Score::kSigmoid ? "sigmoid" : "softmax";
  const std::string score = reading.fields.word(kScoring, fallback);
  if (score == "sigmoid") return Score::kSigmoid;
  if (score != "softmax") {
    reading.unsupported.push_back(
        fmt::format("{} {} (softmax and sigmoid are)", reading.fields.name_of(kScoring), in_quotes(score)));
  }
  return Score::kSoftmax;
}

Method read_method(Reading& reading, const Family& family) {
  const std::string method = reading.fields.word({"topk_method"}, "");
  if (method.empty()) return family.method;
  if (method == "noaux_tc") return Method::kNoAuxTc;
  if (method == "group_limited_greedy") return Method::kLimited;
  if (method != "greedy") {
    reading.unsupported.push_back(
        fmt::format("topk_method {} (greedy, group_limited_greedy and noaux_tc are)", in_quotes(method)));
  }
  return Method::kGreedy;
}

void read_groups(Fields& fields, RouterConfig& router) {
  const auto groups = fields.whole(kGroups, 1, kMaxExperts, 1);
  const auto chosen = fields.whole(kTopKGroups, 1, kMaxExperts, groups);
  const std::string name = fields.name_of(kGroups);
  if (router.experts % groups != 0) {
    fields.problem(fmt::format("{} is {}, which does not divide the {} experts", name, groups, router.experts));
  } else if (chosen > groups) {
    fields.problem(fmt::format("{} is {}, more than {} = {}", fields.name_of(kTopKGroups), chosen, name, groups));
  } else if (chosen * (router.experts / groups) < router.topk) {
    fields.problem(fmt::format("{} is {}: that many groups hold fewer than {} experts", fields.name_of(kTopKGroups),
                               chosen, router.topk));
  }
  router.groups = static_cast<int>(groups);
  router.topk_groups = static_cast<int>(chosen);
}

void read_router(Reading& reading) {
  Fields& fields = reading.fields;
  RouterConfig& router = reading.shape.router;
  const Family family = find_family(reading);
  const Method method = read_method(reading, family);
  router.score = read_score(reading, family);
  router.renormalize = fields.flag({"norm_topk_prob"}, family.renormalize);
  router.scale = static_cast<float>(fields.number({"routed_scaling_factor", "route_scale"}, 1e-6, 1e6, 1.0));
  if (method != Method::kGreedy) read_groups(fields, router);
  router.group_score = method == Method::kNoAuxTc ? GroupScore::kTopTwoSum : GroupScore::kMax;
  reading.shape.selection_bias = method == Method::kNoAuxTc;
  // dbrx divides by the p-norm of the chosen weights; p = 1 is the sum.
  if (fields.number({"moe_normalize_expert_weights"}, 0, 1e6, 1.0) != 1.0) {
    reading.unsupported.emplace_back("moe_normalize_expert_weights other than 1");
  }
}

// ---- experts --------------------------------------------------------------------------------------------------------

std::string activation_name(Fields& fields) {
  const auto nested = fields.find({"ffn_act_fn"});
  if (nested && nested->value->is_object()) return Fields(*nested->value, nested->key + ".").word({"name"}, "silu");
  return fields.word({"hidden_act", "hidden_activation", "ffn_act_fn"}, "silu");
}

void read_activation(Reading& reading) {
  Fields& fields = reading.fields;
  const std::string name = activation_name(fields);
  if (name != "silu" && name != "swish") {
    reading.unsupported.push_back(fmt::format("activation {} (silu is)", in_quotes(name)));
  }
  const double limit = fields.number({"swiglu_limit"}, 1e-3, 1e6, 7.0);
  if (reading.model_type == "gpt_oss") {
    reading.shape.activation = Activation::kClampedSwiGlu;
    reading.shape.clamp_limit = static_cast<float>(limit);
    reading.shape.router_bias = reading.shape.expert_bias = true;
  } else if (fields.has({"swiglu_limit"})) {
    reading.unsupported.emplace_back("swiglu_limit outside gpt_oss");
  }
}

void read_peculiarities(Reading& reading) {
  Fields& fields = reading.fields;
  for (const Unsupported& entry : kUnsupported) {
    if (entry.model_type == reading.model_type) reading.unsupported.emplace_back(entry.what);
  }
  if (reading.unsupported.empty() && fields.whole({"shared_expert_intermediate_size"}, 0, kMaxWidth, 0) > 0) {
    reading.unsupported.emplace_back(kGatedShared);
  }
  const auto hashed = fields.whole({"num_hash_layers"}, 0, kMaxLayers, 0);
  if (hashed > 0) reading.unsupported.push_back(fmt::format("{} layers routed by a hash of the token", hashed));
}

// What the user would call the model: its file, or the folder where the file is just a config.json.
std::string name_from(std::string_view origin, std::string_view model_type) {
  const auto last_part = [](std::string_view path) { return path.substr(path.rfind('/') + 1); };
  std::string_view name = last_part(origin);
  if (name.ends_with(".json")) name.remove_suffix(5);
  if (name == "config") name = last_part(origin.substr(0, std::min(origin.rfind('/'), origin.size())));
  if (name.empty() || name == "." || name == ".." || name == "config.json") name = model_type;
  std::string printable(name.substr(0, 100));
  for (char& c : printable) c = c >= ' ' && c <= '~' ? c : '?';
  return printable;
}

}  // namespace

Result<ModelDescription> describe_model(std::string_view text, const std::string& origin) {
  MOETAX_ASSIGN(const json root, parse_json(text, origin));
  MOETAX_ASSIGN(Reading reading, find_experts(root, origin));
  ModelDescription model;
  reading.shape.name = name_from(origin, reading.model_type);
  read_sizes(reading.fields, reading.shape);
  read_layers(reading.fields, reading.shape);
  read_peculiarities(reading);
  read_router(reading);
  read_activation(reading);
  read_rest(reading.fields, reading.model_type, reading.shape, model);
  if (const auto& problem = reading.fields.first_problem()) {
    return fail(ErrorCode::kBadInput, fmt::format("{}: {}", origin, *problem));
  }
  model.shape = std::move(reading.shape);
  model.model_type = std::move(reading.model_type);
  model.dtype = std::move(reading.dtype);
  model.unsupported = std::move(reading.unsupported);
  return model;
}

Result<ModelShape> parse_model_config(std::string_view text, const std::string& origin) {
  MOETAX_ASSIGN(ModelDescription model, describe_model(text, origin));
  if (!model.unsupported.empty()) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("{}: not supported: {}", origin, fmt::join(model.unsupported, "; ")));
  }
  return std::move(model.shape);
}

Result<ModelShape> read_model_config(const std::string& path) {
  MOETAX_ASSIGN(const std::string text, read_text_file(path, kMaxFileBytes));
  return parse_model_config(text, path);
}

}  // namespace moetax
