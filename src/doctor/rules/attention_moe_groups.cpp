#include <fmt/format.h>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const Settings& s = facts.job.settings;
  const Settings::Names kAttention = {"attn_tp_size", "attention_tp", "attn_tp", "attn_tensor_parallel_size"};
  const Settings::Names kData = {"attn_dp_size", "attention_dp", "attn_dp", "attn_data_parallel_size"};
  const Settings::Names kExperts = {"moe_tp_size", "moe_tp", "moe_tensor_parallel_size"};
  const auto attention = s.whole(kAttention), data = s.whole(kData), experts = s.whole(kExperts);
  if (!attention || !data || !experts || *attention < 1 || *data < 2 || *experts < 1) return;
  if (*attention == *experts || *attention * *data != *experts) return;
  Finding& f = out.add(
      rule, fmt::format("experts gather over {} ranks, attention left each the rows of {}", *experts, *attention));
  f.cause =
      fmt::format("after attention (TP {} x DP {}) a rank has 1/{} of its group's rows; the gather is sized for TP {}.",
                  *attention, *data, *attention, *experts);
  f.evidence = {s.where(kAttention), s.where(kData), s.where(kExperts)};
  f.cost.text = "fails in the first layer";
  f.fix =
      fmt::format("the same split for both: moe tp {} with expert parallelism over the {} groups", *attention, *data);
  f.confidence = Confidence::kPossible;
}

}  // namespace

const Rule kAttentionMoeGroups = {
    .id = "attention-moe-groups",
    .severity = Severity::kError,
    .title = "attention and experts split tokens over different groups",
    .explanation =
        "After the reduce-scatter of attention a rank holds the tokens of its attention group; the gather of "
        "the experts sizes its buffers by the expert group. Where the two are split differently (attention TP "
        "2 x DP 2, experts TP 4), the gather expects more rows than there are.",
    .source = "public report tokenspeed 405",
    .check = check,
};

}  // namespace moetax::doctor
