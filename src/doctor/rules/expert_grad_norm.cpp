#include <fmt/format.h>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const JobFacts& job = facts.job;
  const Settings::Names kClip = {"clip_grad", "gradient_clipping", "max_grad_norm", "max_norm"};
  const auto clip = job.settings.number(kClip);
  if (job.phase != Phase::kTraining || !job.tp || !job.etp || !job.ep || job.ep->value < 2) return;
  if (job.tp->value == job.etp->value || job.tp->value < 2 || !clip || *clip <= 0) return;
  Finding& f =
      out.add(rule, fmt::format("clipping at {:g} with TP {} and expert TP {}", *clip, job.tp->value, job.etp->value));
  f.cause = "the norm sums over two kinds of groups; versions differ in whether they do.";
  f.evidence = {job.settings.where(kClip), job.tp->at, job.etp->at};
  f.cost.text = "no time; another effective learning rate where the norm is wrong";
  f.fix = "print the gradient norm of one batch with expert TP = TP and as it is: they should agree";
  f.confidence = Confidence::kPossible;
}

}  // namespace

const Rule kExpertGradNorm = {
    .id = "expert-grad-norm",
    .severity = Severity::kNote,
    .title = "gradients of experts reduced over another group than the rest",
    .explanation =
        "Where experts are cut differently from attention (expert TP is not TP), their gradients and their "
        "part of the gradient norm belong to other groups. Versions have reduced over the wrong one or left "
        "experts out of the norm, and then clipping depends on the layout. Compare the norm of one batch in "
        "two layouts.",
    .source = "public reports Megatron-LM 5916, 1628; DeepSpeed 8475",
    .check = check,
};

}  // namespace moetax::doctor
