#include <fmt/format.h>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const JobFacts& job = facts.job;
  if (!job.world || !job.tp || job.is("vllm") || job.is("sglang")) return;
  const int model = product({job.tp, job.pp, job.cp});
  const int world = job.world->value;
  if (!job.is("megatron") && !job.is("torchtitan")) return;
  if (world % model != 0) {
    Finding& f = out.add(rule, fmt::format("{} ranks do not divide into groups of {}", world, model));
    f.cause =
        fmt::format("TP {} x PP {} x CP {}.", job.tp->value, job.pp ? job.pp->value : 1, job.cp ? job.cp->value : 1);
    f.evidence = {job.world->at, job.tp->at};
    f.cost.text = "does not start";
    f.fix = fmt::format("a number of ranks that is a multiple of {}", model);
    f.confidence = Confidence::kLikely;
  } else if (job.is("megatron") && job.ep && job.etp) {
    const int experts = product({job.ep, job.etp, job.pp});
    if (world % experts == 0) return;
    Finding& f = out.add(rule, fmt::format("{} ranks do not divide into expert groups of {}", world, experts));
    f.cause = fmt::format("EP {} x expert TP {} x PP {}.", job.ep->value, job.etp->value, job.pp ? job.pp->value : 1);
    f.evidence = {job.world->at, job.ep->at};
    f.cost.text = "does not start";
    f.fix = fmt::format("a number of ranks that is a multiple of {}", experts);
    f.confidence = Confidence::kLikely;
  }
}

}  // namespace

const Rule kSizesDoNotFit = {
    .id = "sizes-do-not-fit",
    .severity = Severity::kError,
    .title = "parallel sizes that do not fill the ranks",
    .explanation =
        "Ranks are laid out as a product of sizes. Where tensor, pipeline and context parallelism do not "
        "divide the number of ranks, or the expert-parallel group does not divide what is left, the launch is "
        "refused after minutes of start-up.",
    .source = "the engines' own checks",
    .check = check,
};

}  // namespace moetax::doctor
