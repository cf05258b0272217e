#include <fmt/format.h>

#include <array>

#include "doctor/facts.h"
#include "doctor/readers.h"
#include "moetax/model/shape.h"

namespace moetax::doctor {
namespace {

void take_shape(const ModelShape& shape, ModelFacts& model) {
  model.hidden = shape.hidden;
  model.inter = shape.inter;
  model.shared_inter = shape.shared_inter;
  model.experts = shape.router.experts;
  model.topk = shape.router.topk;
  model.layers = shape.layers;
  model.moe_layers = shape.moe_layers;
}

// How a model is called on command lines, and the preset that it has the shape of. The longer names come first.
struct Published {
  std::string_view part;
  std::string_view preset;
  std::string_view model_type;
};
constexpr std::array kPublished = {
    Published{"deepseek-v2-lite", "deepseek-v2-lite", "deepseek_v2"},
    Published{"deepseek-v2", "deepseek-v2", "deepseek_v2"},
    Published{"deepseek-v3", "deepseek-v3", "deepseek_v3"},
    Published{"deepseek-r1", "deepseek-v3", "deepseek_v3"},
    Published{"deepseek-moe-16b", "deepseek-moe-16b", "deepseek"},
    Published{"mixtral-8x7b", "mixtral-8x7b", "mixtral"},
    Published{"qwen3-30b-a3b", "qwen3-30b-a3b", "qwen3_moe"},
    Published{"olmoe-1b-7b", "olmoe-1b-7b", "olmoe"},
    Published{"gpt-oss-20b", "gpt-oss-20b", "gpt_oss"},
};

// torchtitan's flavours of its deepseek_v3.
std::string_view torchtitan_flavor(const Settings& settings) {
  const auto name = settings.word({"model.name"}), flavor = settings.word({"model.flavor"});
  if (!name || !flavor || *name != "deepseek_v3") return "";
  return *flavor == "16b"    ? "deepseek-v2-lite"
         : *flavor == "236b" ? "deepseek-v2"
         : *flavor == "671b" ? "deepseek-v3"
                             : "";
}

std::optional<ModelFacts> published(const Settings& settings) {
  const Settings::Names kNames = {"model",
                                  "model_path",
                                  "model_name_or_path",
                                  "model_id",
                                  "base_model",
                                  "actor_rollout_ref.model.path",
                                  "hf_url",
                                  "model.name",
                                  "tokenizer_model",
                                  "MODEL",
                                  "pretrained_model_name_or_path"};
  const Setting* setting = settings.find(kNames);
  const auto value = settings.word(kNames);
  std::string_view name = torchtitan_flavor(settings), model_type;
  if (name.empty() && value) {
    for (const Published& entry : kPublished) {
      if (!contains(*value, entry.part) || contains(*value, "distill")) continue;
      name = entry.preset;
      model_type = entry.model_type;
      break;
    }
  }
  const auto shape = name.empty() ? Result<ModelShape>(fail(ErrorCode::kUsage, "")) : preset(name);
  if (!shape || !setting) return std::nullopt;
  ModelFacts model;
  model.name = name;
  model.model_type = model_type;
  model.at = setting->at;
  take_shape(*shape, model);
  return model;
}

// Megatron's flags.
std::optional<ModelFacts> from_flags(const Settings& s) {
  const auto experts = s.whole({"num_experts"}), topk = s.whole({"moe_router_topk"});
  if (!experts || *experts < 1 || *experts > 65536) return std::nullopt;
  ModelFacts model;
  model.at = s.find({"num_experts"})->at;
  model.name = "the model of the flags";
  const auto size = [&](Settings::Names names) {
    const auto value = s.whole(names).value_or(0);
    return value > 0 && value < (1 << 20) ? value : 0;
  };
  model.experts = static_cast<int>(*experts);
  model.topk = topk && *topk >= 1 && *topk <= *experts ? static_cast<int>(*topk) : 0;
  model.hidden = size({"hidden_size"});
  model.inter = size({"moe_ffn_hidden_size"});
  if (model.inter == 0) model.inter = size({"ffn_hidden_size"});
  model.shared_inter = size({"moe_shared_expert_intermediate_size"});
  model.layers = static_cast<int>(size({"num_layers"}));
  // "([0]*3+[1]*58)" lists which layers have experts; without it all do.
  model.moe_layers = model.layers;
  if (const auto pattern = s.word({"moe_layer_freq"}); pattern && model.layers > 0) {
    int dense = 0;
    if (pattern->starts_with("([0]*")) {
      for (std::size_t i = 5; i < pattern->size() && std::isdigit(static_cast<unsigned char>((*pattern)[i])); ++i) {
        dense = dense < 100'000 ? dense * 10 + ((*pattern)[i] - '0') : dense;
      }
    }
    const auto step = s.whole({"moe_layer_freq"});
    if (step && *step > 1) dense = model.layers - model.layers / static_cast<int>(std::min(*step, 10'000LL));
    model.moe_layers = std::max(0, model.layers - dense);
  }
  return model;
}

}  // namespace

Result<ModelFacts> read_model(std::string_view text, const std::string& file) {
  MOETAX_ASSIGN(const ModelDescription described, describe_model(text, file));
  ModelFacts model;
  model.settings = read_json_settings(text, file).settings;
  model.name = described.shape.name;
  model.model_type = described.model_type;
  model.dtype = described.dtype;
  take_shape(described.shape, model);
  model.total_elements = described.total_elements();
  model.active_elements = described.active_elements();
  const Setting* experts =
      model.settings.find({"n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts"});
  model.at = experts ? experts->at : Evidence{file, 0, ""};
  return model;
}

std::optional<ModelFacts> model_of_job(const JobFacts& job) {
  auto model = from_flags(job.settings);
  if (model && model->topk > 0 && model->hidden > 0) return model;
  return published(job.settings);
}

std::string describe(const ModelFacts& model) {
  std::string text = fmt::format("{}: {} experts", model.name, model.experts);
  if (model.topk > 0) text += fmt::format(", top-{}", model.topk);
  if (model.hidden > 0) text += fmt::format(", H={} I={}", model.hidden, model.inter);
  if (model.shared_inter > 0) text += fmt::format(", shared I={}", model.shared_inter);
  if (model.layers > 0) text += fmt::format(", {} of {} layers with experts", model.moe_layers, model.layers);
  if (model.total_elements > 0) {
    text += fmt::format(", {:.3g} B parameters ({:.2g} B for a token)", model.total_elements * 1e-9,
                        model.active_elements * 1e-9);
  }
  return text;
}

}  // namespace moetax::doctor
