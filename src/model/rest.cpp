#include "model/rest.h"

namespace moetax {
namespace {

// Shared experts that the modelling code has and the file may not mention. Gemma's dense feed-forward beside the
// experts is one in all but name.
std::int64_t shared_of_family(Fields& fields, const std::string& type, const ModelShape& shape) {
  if (type.starts_with("llama4")) return shape.inter;
  if (type == "gemma4_text") return fields.whole({"intermediate_size"}, 0, kMaxWidth, 0);
  return fields.whole({"shared_expert_intermediate_size"}, 0, kMaxWidth, type == "qwen2_moe" ? 5632 : 0);
}

// Multi-head latent attention (arXiv:2405.04434): low-rank queries and keys/values; otherwise grouped queries.
double attention_elements(Fields& fields, double hidden) {
  const auto size = [&](Fields::Keys keys, std::int64_t fallback) {
    return static_cast<double>(fields.whole(keys, 0, kMaxWidth, fallback));
  };
  const double heads = size({"num_attention_heads", "n_heads"}, 0);
  if (heads == 0) return 0;
  const double kv_rank = size({"kv_lora_rank"}, 0);
  if (kv_rank > 0) {
    const double q_rank = size({"q_lora_rank"}, 0), rope = size({"qk_rope_head_dim"}, 0);
    const double key = size({"qk_nope_head_dim"}, 0), value = size({"v_head_dim"}, 0);
    const double query = q_rank > 0 ? q_rank * (hidden + heads * (key + rope)) : hidden * heads * (key + rope);
    return query + hidden * (kv_rank + rope) + kv_rank * heads * (key + value) + heads * value * hidden;
  }
  const double head = size({"head_dim"}, static_cast<std::int64_t>(hidden / heads));
  double kv_heads = size({"num_key_value_heads"}, static_cast<std::int64_t>(heads));
  const auto nested = fields.find({"attn_config"});
  if (nested && nested->value->is_object()) {
    kv_heads = static_cast<double>(Fields(*nested->value, "").whole({"kv_n_heads"}, 0, kMaxWidth, 0));
  }
  return hidden * head * (2 * heads + 2 * kv_heads);
}

double elements(const ModelDescription& model, double experts) {
  const ModelShape& shape = model.shape;
  const int dense = shape.layers - shape.moe_layers;
  if (shape.layers == 0 || model.vocab == 0 || model.attention_elements == 0) return 0;
  if (dense > 0 && model.dense_inter == 0) return 0;
  const LayerElements layer = layer_elements(shape);
  const auto hidden = static_cast<double>(shape.hidden);
  return 2 * hidden * static_cast<double>(model.vocab) + shape.layers * model.attention_elements +
         dense * 3 * hidden * static_cast<double>(model.dense_inter) +
         shape.moe_layers * (layer.replicated + experts * layer.expert);
}

}  // namespace

void read_rest(Fields fields, const std::string& model_type, ModelShape& shape, ModelDescription& model) {
  if (shape.shared_inter == 0) shape.shared_inter = shared_of_family(fields, model_type, shape);
  if (shape.moe_layers < shape.layers) {
    model.dense_inter = fields.whole({"intermediate_size_mlp", "inter_dim", "intermediate_size"}, 0, kMaxWidth, 0);
  }
  model.vocab = fields.whole({"vocab_size"}, 0, std::int64_t{1} << 32, 0);
  model.attention_elements = attention_elements(fields, static_cast<double>(shape.hidden));
}

double ModelDescription::total_elements() const {
  return elements(*this, shape.router.experts);
}

double ModelDescription::active_elements() const {
  return elements(*this, shape.router.topk);
}

}  // namespace moetax
