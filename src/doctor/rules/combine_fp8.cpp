#include <fmt/format.h>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const Settings& s = facts.job.settings;
  const Settings::Names kType = {"combine_dtype",
                                 "moe_combine_dtype",
                                 "a2a_combine_dtype",
                                 "combine_precision",
                                 "SGLANG_DEEPEP_COMBINE_DTYPE",
                                 "SGLANG_MORI_FP8_COMB",
                                 "TRTLLM_MOE_COMBINE_DTYPE",
                                 "wire.combine"};
  const auto type = s.word(kType);
  if (!type) return;
  const bool eight = contains(*type, "fp8") || contains(*type, "e4m3") || contains(*type, "int8") ||
                     (s.find(kType)->key == "SGLANG_MORI_FP8_COMB" && s.on(kType));
  if (!eight) return;
  Finding& f = out.add(rule, "results come back in 8 bits");
  f.cause = "the sum over a token's experts is made of rounded terms.";
  f.evidence = {s.where(kType)};
  f.cost.text = "accuracy: 3.7 points of gsm8k in one report; bytes of the way back are halved";
  const auto token = facts.job.ep_nodes() ? token_traffic(facts, *facts.job.ep_nodes()) : std::nullopt;
  if (token && token->bytes > 0)
    f.cost.text += fmt::format(" ({:.1f} KiB of {:.1f} a token and layer between nodes)", token->bytes / 4096,
                               token->bytes / 1024);
  f.fix = "combine in bf16; dispatch may stay in FP8";
  f.confidence = Confidence::kLikely;
}

}  // namespace

const Rule kCombineFp8 = {
    .id = "combine-fp8",
    .severity = Severity::kWarning,
    .title = "the way back is quantised to 8 bits",
    .explanation =
        "Dispatch in FP8 is neutral in public tests: each expert sees a rounded token. Combine sums K rounded "
        "results and adds them to the residual; one model lost 3.7 points of a mathematics benchmark by it.",
    .source = "public report sglang 19757",
    .check = check,
};

}  // namespace moetax::doctor
