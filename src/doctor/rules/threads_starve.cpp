#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const Settings& s = facts.job.settings;
  const Settings::Names kThreads = {"OMP_NUM_THREADS"};
  const Settings::Names kDevice = {"offload_optimizer.device", "offload_optimizer_device", "optimizer_cpu_offload"};
  const auto device = s.word(kDevice);
  if (s.whole(kThreads) != 1 || !device || (*device != "cpu" && *device != "true")) return;
  Finding& f = out.add(rule, "the optimizer runs on one core of each rank");
  f.cause = "OMP_NUM_THREADS=1, and the optimizer's state is on the CPU.";
  f.evidence = {s.where(kThreads), s.where(kDevice)};
  f.cost = cannot_price("the number of cores and the time of the optimizer step");
  f.fix = "export OMP_NUM_THREADS=$(( $(nproc) / ranks on this node ))";
  f.confidence = Confidence::kCertain;
}

}  // namespace

const Rule kThreadsStarve = {
    .id = "threads-starve",
    .severity = Severity::kNote,
    .title = "one host thread where the host computes",
    .explanation =
        "torchrun sets OMP_NUM_THREADS=1 for every process when nothing is said. An optimizer or experts on "
        "the CPU then run on one core a rank, and steps wait for them.",
    .source = "torchrun's own warning; DeepSpeed's documentation of the CPU optimizer",
    .check = check,
};

}  // namespace moetax::doctor
