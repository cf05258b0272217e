#include <fmt/format.h>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

// vLLM spreads experts over tensor x data parallel ranks; with one rank there is nothing to spread over.
void check(const Facts& facts, const Rule& rule, Findings& out) {
  const JobFacts& job = facts.job;
  if (!job.is("vllm") || !job.ep) return;
  // What the script around the command means to do.
  const Setting* meant = job.variables.find({"EP", "EP_SIZE"});
  const auto wanted = job.variables.whole({"EP", "EP_SIZE"});
  const bool other = wanted && *wanted > 1 && *wanted != job.ep->value;
  if (job.ep->value > 1 && !other) return;
  Finding& f = out.add(rule, job.ep->value == 1 ? "expert parallelism over one GPU does nothing"
                                                : fmt::format("experts are spread over {} GPUs, the script says {}",
                                                              job.ep->value, *wanted));
  f.cause = fmt::format("vLLM spreads experts over tensor x data parallel ranks, here {} x {} = {}.",
                        job.tp ? job.tp->value : 1, job.dp ? job.dp->value : 1, job.ep->value);
  f.evidence = {job.ep->at};
  if (job.tp) f.evidence.push_back(job.tp->at);
  if (other) f.evidence.push_back(meant->at);
  f.cost = cannot_price("a run: the GPUs beyond these stay idle");
  const long long size = wanted.value_or(2);
  const int tp = job.tp ? job.tp->value : 1;
  f.fix = size % tp == 0 ? fmt::format("--data-parallel-size {}", size / tp)
                         : fmt::format("--tensor-parallel-size {}", size);
  f.confidence = Confidence::kCertain;
}

}  // namespace

const Rule kEpInert = {
    .id = "ep-inert",
    .severity = Severity::kWarning,
    .title = "expert parallelism is switched on but spreads over fewer GPUs than meant",
    .explanation =
        "vLLM has no size for expert parallelism: --enable-expert-parallel spreads the experts over all ranks of "
        "tensor "
        "and data parallelism. A script that sets EP=4 for itself and passes only --tensor-parallel-size 1 runs on one "
        "GPU, with any all-to-all backend it names unused.",
    .source = "vLLM's documentation of expert parallel deployment; launch scripts found in public trace collections",
    .check = check,
};

}  // namespace moetax::doctor
