#include <fmt/format.h>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const JobFacts& job = facts.job;
  const Settings& s = job.settings;
  const Settings::Names kGenerate = {"predict_with_generate", "do_generate", "generate"};
  const bool serving = job.is("vllm") || job.is("sglang") || job.is("trtllm") || job.is("llama.cpp");
  if (serving || !job.ep || job.ep->value < 2 || !s.on(kGenerate)) return;
  if (s.on({"synced_gpus"})) return;
  Finding& f = out.add(rule, "ranks that finish generating first leave the exchange of the others");
  f.cause = fmt::format("generation lengths differ between ranks, and each forward has an all-to-all over {} ranks.",
                        job.ep->value);
  f.evidence = {s.where(kGenerate), job.ep->at};
  f.cost.text = "the evaluation stops until the watchdog ends it";
  f.fix = "model.generate(..., synced_gpus=True)";
  f.confidence = Confidence::kLikely;
}

}  // namespace

const Rule kGenerateNotSynced = {
    .id = "generate-not-synced",
    .severity = Severity::kWarning,
    .title = "generation under expert parallelism without dummy steps on finished ranks",
    .explanation =
        "In generate() each rank stops when its sequences are complete. Under expert parallelism, or ZeRO-3, "
        "every forward holds collectives of all ranks, so a rank that has left makes the others wait for "
        "ever. Synchronised generation keeps finished ranks running dummy steps until all are done.",
    .source = "public report DeepSpeed 6634",
    .check = check,
};

}  // namespace moetax::doctor
