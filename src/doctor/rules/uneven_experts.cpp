#include <fmt/format.h>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const JobFacts& job = facts.job;
  if (!facts.model || !job.ep || job.ep->value < 2 || facts.model->experts < 1) return;
  const int experts = facts.model->experts, ranks = job.ep->value;
  const auto extra = job.settings.whole({"ep_num_redundant_experts", "num_redundant_experts"}).value_or(0);
  if ((experts + extra) % ranks == 0) return;
  int fits = 1;
  for (int size = 2; size <= ranks; ++size) {
    if (experts % size == 0) fits = size;
  }
  Finding& f = out.add(rule, fmt::format("{} experts do not divide over {} ranks", experts, ranks));
  f.cause = fmt::format("some ranks hold {} experts, others {}.", (experts + ranks - 1) / ranks, experts / ranks);
  f.evidence = {job.ep->at, facts.model->at};
  f.cost.text = fmt::format("refused by most engines; otherwise the fuller ranks take {:.0f} % longer than the mean",
                            100.0 * ((experts + ranks - 1) / ranks * ranks - experts) / experts);
  f.fix = fmt::format("EP {}", fits);
  f.severity = job.is("vllm") || experts < ranks ? Severity::kWarning : Severity::kError;
  f.confidence = Confidence::kLikely;
}

}  // namespace

const Rule kUnevenExperts = {
    .id = "uneven-experts",
    .severity = Severity::kError,
    .title = "experts that do not divide over the expert-parallel ranks",
    .explanation =
        "Engines place experts in equal blocks. A number of experts that the group does not divide is refused "
        "by most, padded by some, and leaves ranks with one expert more by others, who then set the pace.",
    .source = "the engines' own checks; Qwen1.5-MoE has 60 experts",
    .check = check,
};

}  // namespace moetax::doctor
