// A case: the files somebody had, and the verdict. Each is tested by what must be found and, in `not_if`, by the same
// files with the deciding fact changed, where it must not.
#pragma once

#include "doctor/examined.h"

namespace moetax::doctor {

struct Change {
  std::string file, from, to;
};

struct Case {
  const char* name;
  std::vector<File> files;
  const char* id;
  std::vector<const char*> says;  // words of the finding
  std::vector<Change> not_if;     // each alone makes the finding go away
};

inline std::vector<File> changed(std::vector<File> files, const Change& change) {
  for (File& file : files) {
    if (file.name != change.file) continue;
    const std::size_t at = file.text.find(change.from);
    EXPECT_NE(at, std::string::npos) << change.from;
    if (at != std::string::npos) file.text.replace(at, change.from.size(), change.to);
  }
  return files;
}

inline void expect_verdict(const Case& one) {
  SCOPED_TRACE(one.name);
  const Examination examination = examined(one.files);
  const Finding* finding = find(examination, one.id);
  ASSERT_TRUE(finding) << one.id << " was not found, but " << testing::PrintToString(ids(examination));
  EXPECT_FALSE(finding->evidence.empty());
  EXPECT_FALSE(finding->cost.text.empty());
  EXPECT_FALSE(finding->fix.empty());
  for (const char* word : one.says) EXPECT_THAT(words(*finding), testing::HasSubstr(word));
  for (const Change& change : one.not_if) {
    SCOPED_TRACE("with '" + change.to + "' for '" + change.from + "'");
    EXPECT_FALSE(find(examined(changed(one.files, change)), one.id));
  }
}

inline File qwen3() {
  return {"qwen3/config.json", R"({
  "model_type": "qwen3_moe", "hidden_size": 2048, "moe_intermediate_size": 768, "intermediate_size": 6144,
  "num_hidden_layers": 48, "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": true,
  "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936,
  "torch_dtype": "bfloat16"
})"};
}

inline File mixtral() {
  return {"mixtral/config.json", R"({
  "model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
  "num_local_experts": 8, "num_experts_per_tok": 2, "num_attention_heads": 32, "num_key_value_heads": 8,
  "vocab_size": 32000, "torch_dtype": "bfloat16"
})"};
}

inline File deepseek_v3() {
  return {"v3/config.json", R"({
  "model_type": "deepseek_v3", "hidden_size": 7168, "moe_intermediate_size": 2048, "intermediate_size": 18432,
  "num_hidden_layers": 61, "first_k_dense_replace": 3, "n_routed_experts": 256, "n_shared_experts": 1,
  "num_experts_per_tok": 8, "n_group": 8, "topk_group": 4, "norm_topk_prob": true, "scoring_func": "sigmoid",
  "topk_method": "noaux_tc", "routed_scaling_factor": 2.5, "num_attention_heads": 128, "q_lora_rank": 1536,
  "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 129280
})"};
}

}  // namespace moetax::doctor
