#include <fmt/format.h>

#include "doctor/rules/rules.h"
#include "moetax/base/units.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const Settings& s = facts.job.settings;
  const Settings::Names kMoved = {"cpu_offload_gb"};
  const Settings::Names kBatch = {"max_num_seqs", "max_running_requests"};
  const auto moved = s.number(kMoved);
  if (facts.job.phase != Phase::kInference || !moved || *moved <= 0 || *moved > 1e5) return;
  const auto batch = s.whole(kBatch);
  if (batch && *batch > 16) return;
  Finding& f = out.add(rule, fmt::format("{:g} GiB of weights cross the host link in each forward pass", *moved));
  f.cause = batch ? fmt::format("at most {} sequences share a pass.", *batch) : "each token that is decoded is a pass.";
  f.evidence = {s.where(kMoved)};
  f.cost.bytes = *moved * 0x1p30;
  if (const double gbs = facts.host_gbs(); gbs > 0) {
    f.cost.us = *f.cost.bytes / (gbs * 1e3);
    f.cost.text = fmt::format("{} a pass at {:.3g} GB/s", units::time_text(*f.cost.us), gbs);
  } else {
    f.cost.text = fmt::format("{:g} GiB a pass; no time without the speed of the host link (nvbandwidth)", *moved);
  }
  f.fix = "for a few users compute experts where they lie: llama-server --cpu-moe; or 4-bit weights that fit";
  f.confidence = Confidence::kPossible;
}

}  // namespace

const Rule kOffloadMovesWeights = {
    .id = "offload-moves-weights",
    .severity = Severity::kNote,
    .title = "weights that cross the host link in every forward pass",
    .explanation =
        "Offload by moving weights to the GPU for each pass costs their bytes over PCIe, whatever the batch. For a few "
        "sequences the host computes the same experts in less time than the copy takes, because it reads them from its "
        "own memory once: 5 tokens per second against 2 to 3 in one report. For large batches the copy is shared by "
        "many tokens and moving wins.",
    .source = "public report llama.cpp 4729",
    .check = check,
};

}  // namespace moetax::doctor
