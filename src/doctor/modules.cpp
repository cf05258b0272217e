#include "doctor/modules.h"

#include <array>

namespace moetax::doctor {
namespace {

struct Block {
  std::string_view model_type;
  std::string_view name;
};
constexpr std::array kBlocks = {
    Block{"mixtral", "MixtralSparseMoeBlock"},
    Block{"qwen2_moe", "Qwen2MoeSparseMoeBlock"},
    Block{"qwen3_moe", "Qwen3MoeSparseMoeBlock"},
    Block{"deepseek", "DeepseekMoE"},
    Block{"deepseek_v2", "DeepseekV2MoE"},
    Block{"deepseek_v3", "DeepseekV3MoE"},
    Block{"kimi_k2", "DeepseekV3MoE"},
    Block{"olmoe", "OlmoeSparseMoeBlock"},
    Block{"phimoe", "PhimoeSparseMoeBlock"},
    Block{"jamba", "JambaSparseMoeBlock"},
    Block{"glm4_moe", "Glm4MoeMoE"},
    Block{"qwen3_next", "Qwen3NextSparseMoeBlock"},
    Block{"qwen3_omni_moe", "Qwen3OmniMoeThinkerTextSparseMoeBlock"},
    Block{"qwen3_omni_moe_text", "Qwen3OmniMoeThinkerTextSparseMoeBlock"},
};

}  // namespace

std::optional<std::string_view> block_of_expert_modules(const ModelFacts& model) {
  for (const Block& block : kBlocks) {
    if (block.model_type == model.model_type) return block.name;
  }
  return std::nullopt;
}

}  // namespace moetax::doctor
