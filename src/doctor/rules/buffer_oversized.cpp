#include <fmt/format.h>

#include "doctor/rules/rules.h"
#include "moetax/base/units.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const Settings& s = facts.job.settings;
  const Settings::Names kCap = {"SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK", "num_max_dispatch_tokens_per_rank",
                                "VLLM_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK"};
  const auto cap = s.whole(kCap);
  if (!cap || *cap < 1 || !facts.model || facts.model->hidden < 1) return;
  const double bytes =
      2.0 * static_cast<double>(*cap) * facts.model->experts * static_cast<double>(facts.model->hidden) * kBf16Bytes;
  const double memory = (facts.gpu && facts.gpu->value.memory_gib > 0 ? facts.gpu->value.memory_gib : 141) * 0x1p30;
  if (bytes < 0.12 * memory) return;
  Finding& f =
      out.add(rule, fmt::format("{} of buffers on every GPU for {} tokens a rank", units::bytes_text(bytes), *cap));
  f.cause = fmt::format("2 x {} tokens x {} experts x H={} x 2 bytes, taken before the first request.", *cap,
                        facts.model->experts, facts.model->hidden);
  f.evidence = {s.where(kCap), facts.model->at};
  f.cost.bytes = bytes;
  f.cost.text = fmt::format("{:.0f} % of a GPU of {}", 100 * bytes / memory, units::bytes_text(memory));
  f.fix =
      "export SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK=N with N = max running requests / dp x (1 + draft tokens)";
  f.confidence = Confidence::kLikely;
}

}  // namespace

const Rule kBufferOversized = {
    .id = "buffer-oversized",
    .severity = Severity::kWarning,
    .title = "dispatch buffers that take a large part of the GPU's memory",
    .explanation =
        "Low-latency buffers are made for the worst case: every rank's cap of tokens for every expert, in "
        "both directions. A cap of a few thousand tokens takes more than ten GiB of each GPU before the first "
        "request.",
    .source = "public reports DeepEP 165, sglang 28985",
    .check = check,
};

}  // namespace moetax::doctor
