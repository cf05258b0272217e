#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const Settings& s = facts.job.settings;
  const Settings::Names kFlags = {"cpu_moe", "n_cpu_moe", "ncmoe", "cmoe", "expert_offload", "moe_offload"};
  const Settings::Names kBatch = {"ubatch_size", "ub", "batch_size", "b", "max_num_seqs"};
  const auto batch = s.whole(kBatch);
  if (!s.on(kFlags) || !batch || *batch < 1 || !facts.model || facts.model->topk < 1) return;
  const double experts = facts.model->experts;
  const double used = experts * (1 - std::pow(1 - facts.model->topk / experts, static_cast<double>(*batch)));
  if (used < 0.95 * experts) return;
  Finding& f =
      out.add(rule, fmt::format("a batch of {} tokens uses {:.0f} of {} experts", *batch, used, facts.model->experts));
  f.cause = fmt::format("{} (1 - (1 - {}/{})^{}): nothing is left out by copying on demand.", facts.model->experts,
                        facts.model->topk, facts.model->experts, *batch);
  f.evidence = {s.where(kFlags), s.where(kBatch), facts.model->at};
  const double layer =
      experts * 3.0 * static_cast<double>(facts.model->hidden) * static_cast<double>(facts.model->inter) * kBf16Bytes;
  f.cost.bytes = layer * std::max(1, facts.model->moe_layers);
  f.cost.text = fmt::format(
      "{:.2f} GiB a layer at 16 bits, whatever is copied on demand; the time needs the bandwidth of the host link",
      layer * 0x1p-30);
  f.fix = "copy whole layers ahead, double buffered, for prefill; selective copies pay for decoding of a few sequences";
  f.confidence = Confidence::kLikely;
}

}  // namespace

const Rule kOffloadSelectiveUseless = {
    .id = "offload-selective-useless",
    .severity = Severity::kNote,
    .title = "batches that use every expert, with experts copied on demand",
    .explanation =
        "Copying only the experts a batch uses saves bytes while few are used. The expected number of "
        "distinct experts of B tokens is E (1 - (1 - K/E)^B): a few dozen tokens reach nearly all, and then "
        "the copies are those of the whole layer.",
    .source = "public reports llama.cpp 15346, ik_llama 698",
    .check = check,
};

}  // namespace moetax::doctor
