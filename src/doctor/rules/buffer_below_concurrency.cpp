#include <fmt/format.h>

#include <cmath>

#include "doctor/rules/rules.h"
#include "moetax/base/units.h"

namespace moetax::doctor {
namespace {

const Settings::Names kCap = {"SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK", "num_max_dispatch_tokens_per_rank",
                              "VLLM_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK"};
const Settings::Names kConcurrency = {"max_running_requests", "max_num_seqs"};

// Bytes of the low-latency receive buffers: rows for every expert of every rank's cap, bf16, there and back.
std::optional<double> buffer_bytes(const Facts& facts, double tokens) {
  if (!facts.model || facts.model->hidden < 1 || facts.model->experts < 1) return std::nullopt;
  return 2 * tokens * facts.model->experts * static_cast<double>(facts.model->hidden) * kBf16Bytes;
}

// Requests are spread over data-parallel ranks; SGLang's limit is for all of them, vLLM's for each.
std::optional<long long> needed_tokens(const Facts& facts) {
  const Settings& s = facts.job.settings;
  const auto running = s.whole(kConcurrency);
  if (!running || *running < 1) return std::nullopt;
  const bool of_all = facts.job.is("sglang");
  const long long dp = of_all && facts.job.dp ? facts.job.dp->value : 1;
  const long long drafts = s.whole({"speculative_num_draft_tokens", "num_speculative_tokens"}).value_or(0);
  if (*running > 1'000'000'000 || drafts < 0 || drafts > 1'000'000) return std::nullopt;
  return (*running + dp - 1) / dp * (1 + drafts);
}

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const Settings& s = facts.job.settings;
  const auto cap = s.whole(kCap);
  const auto needed = needed_tokens(facts);
  const auto refused = facts.log->of(LogKind::kBufferCap);
  if (cap && needed && *cap < *needed) {
    Finding& f = out.add(rule, fmt::format("a rank may have to send {} tokens, its buffer holds {}", *needed, *cap));
    f.cause = "low-latency dispatch has room for a fixed number of tokens a rank, and refuses a batch that is larger.";
    f.evidence = {s.find(kCap)->at, s.find(kConcurrency)->at};
    const auto bytes = buffer_bytes(facts, static_cast<double>(*needed));
    f.cost =
        bytes ? Cost{fmt::format("{} of buffers a GPU at {} tokens", units::bytes_text(*bytes), *needed), {}, bytes, {}}
              : cannot_price("the model's config.json");
    f.fix = fmt::format("export SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK={}   # or --max-running-requests lower",
                        *needed);
    f.confidence = Confidence::kLikely;
  } else if (!refused.empty() && contains(refused.front()->at.text, "assert")) {
    Finding& f = out.add(rule, "more tokens than the low-latency buffer of a rank holds");
    f.cause = "low-latency dispatch has room for a fixed number of tokens a rank (128 unless told otherwise).";
    f.evidence = {refused.front()->at};
    f.cost = cannot_price("the launch line (--max-running-requests, --dp) and the model's config.json");
    f.fix =
        "export SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK=N with N = max running requests / dp x (1 + draft "
        "tokens)";
    f.confidence = Confidence::kCertain;
  }
}

}  // namespace

const Rule kBufferBelowConcurrency = {
    .id = "buffer-below-concurrency",
    .severity = Severity::kError,
    .title = "dispatch buffers smaller than the number of running requests",
    .explanation =
        "DeepEP's low-latency dispatch asserts that a rank's tokens are at most num_max_dispatch_tokens_per_rank (128 "
        "by "
        "default). In decoding a rank has as many tokens as running requests, divided by the data-parallel size, times "
        "one "
        "plus the draft tokens of speculative decoding; warm-up runs it at the limit. The buffers grow with the cap: "
        "tokens "
        "x experts x H x 2 bytes, for dispatch and for combine, so a cap far above what is needed runs out of memory.",
    .source = "public reports DeepEP 165, srt-slurm 42, sglang 28985",
    .check = check,
};

}  // namespace moetax::doctor
