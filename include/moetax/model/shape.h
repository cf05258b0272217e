// Shapes of published MoE models: presets by name, and any Hugging Face or native DeepSeek config.json.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "moetax/base/result.h"
#include "moetax/expert/feed_forward.h"
#include "moetax/route/router.h"

namespace moetax {

// One MoE layer of a model and how many the model has.
struct ModelShape {
  std::string name;  // of the preset; of a file: its own or its folder's, without config.json
  std::int64_t hidden = 0;
  std::int64_t inter = 0;         // per routed expert
  std::int64_t shared_inter = 0;  // all shared experts together, 0: none
  RouterConfig router;            // experts and top-k are here
  bool router_bias = false;       // a learned bias on the logits (gpt-oss)
  bool selection_bias = false;    // V3's bias, used for picking only
  Activation activation = Activation::kSwiGlu;
  float clamp_limit = 7.0f;
  bool expert_bias = false;
  int layers = 0;      // all layers, 0: unknown
  int moe_layers = 0;  // of these with experts
};

// deepseek-moe-16b deepseek-v2-lite deepseek-v2 deepseek-v3 mixtral-8x7b qwen3-30b-a3b olmoe-1b-7b gpt-oss-20b
std::vector<std::string_view> preset_names();
// kUsage naming the nearest presets when there is no such one.
Result<ModelShape> preset(std::string_view name);

// Reads a config file. Optional keys may be missing or null; what a family's files leave to its modelling code is
// filled in by model_type. kBadInput: not readable, not JSON (byte offset), no MoE in it, a missing or absurd field (by
// name). kUnavailable: everything in the file that the layer cannot do (say, its gating function), or a model_type that
// is not known whose file does not describe its routing.
Result<ModelShape> read_model_config(const std::string& path);
// The same from text already read; `origin` is used in messages.
Result<ModelShape> parse_model_config(std::string_view text, const std::string& origin);

// All a config file says, whether or not the layer can run it. Elements count weights, biases and norms left out.
struct ModelDescription {
  ModelShape shape;
  std::string model_type;                // empty: the file names none
  std::string dtype;                     // of the weights as trained: "bfloat16", ... ; empty: not said
  std::vector<std::string> unsupported;  // what the layer cannot do, each as a noun; empty: it can run this model
  std::int64_t dense_inter = 0;          // inner width of a layer without experts, 0: unknown or none
  std::int64_t vocab = 0;                // 0: unknown
  double attention_elements = 0;         // of one layer, 0: unknown

  // Of the whole model; of what one token uses. 0: something above is unknown.
  double total_elements() const;
  double active_elements() const;
};

// As parse_model_config(), but what the layer cannot do is listed instead of refused.
Result<ModelDescription> describe_model(std::string_view text, const std::string& origin);

// Elements of one layer's weights.
struct LayerElements {
  double expert = 0;      // of each routed expert
  double replicated = 0;  // what every rank holds: shared experts and router
};
LayerElements layer_elements(const ModelShape& shape);

// Bytes of one layer's weights, each once, in `bytes_per_element`.
double layer_weight_bytes(const ModelShape& shape, std::size_t bytes_per_element);

}  // namespace moetax
