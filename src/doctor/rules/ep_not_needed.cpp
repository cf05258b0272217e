#include <fmt/format.h>

#include "doctor/rules/rules.h"
#include "moetax/base/units.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const JobFacts& job = facts.job;
  if (job.phase != Phase::kInference || !job.ep || job.ep->value < 2 || !facts.model || !facts.gpu) return;
  const double weights = facts.model->total_elements * kBf16Bytes;
  const double memory = facts.gpu->value.memory_gib * 0x1p30;
  if (weights <= 0 || memory <= 0 || weights > 0.5 * memory) return;
  Finding& f = out.add(rule, fmt::format("{} of weights fit on one {} without expert parallelism",
                                         units::bytes_text(weights), facts.gpu->value.name));
  f.cause = fmt::format("EP {} saves at most {} a GPU here, and exchanges tokens in every layer for it.", job.ep->value,
                        units::bytes_text(weights * (job.ep->value - 1) / job.ep->value));
  f.evidence = {job.ep->at, facts.model->at, facts.gpu->at};
  f.cost.text = "13 to 18 % latency in reported cases; measure with your own load";
  f.fix = "data parallelism instead: drop the expert-parallel flag and compare throughput at your concurrency";
  f.confidence = Confidence::kPossible;
}

}  // namespace

const Rule kEpNotNeeded = {
    .id = "ep-not-needed",
    .severity = Severity::kNote,
    .title = "a model that fits without expert parallelism",
    .explanation =
        "Expert parallelism buys memory and pays with an exchange in every layer: 13 to 18 % in reported "
        "cases. A model whose weights fit on each GPU with room for the cache is usually faster without, "
        "unless batches are large and load is balanced.",
    .source = "public reports sglang 37357, 23896; ATOM 1210; kaito 2305 (the other way, at high load)",
    .check = check,
};

}  // namespace moetax::doctor
