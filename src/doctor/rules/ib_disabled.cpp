#include <fmt/format.h>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const JobFacts& job = facts.job;
  const Settings::Names kDisable = {"NCCL_IB_DISABLE"};
  if (!job.settings.on(kDisable) || !job.nodes || job.nodes->value < 2) return;
  if (job.settings.word({"FI_PROVIDER"}) == "efa") return;
  Finding& f = out.add(rule, fmt::format("{} nodes talk over sockets", job.nodes->value));
  f.cause = "NCCL_IB_DISABLE=1 leaves only TCP between nodes.";
  f.evidence = {job.settings.where(kDisable), job.nodes->at};
  f.cost = job.ep_nodes() ? price_between_nodes(facts, *job.ep_nodes())
                          : cannot_price("the EP size and the model's config.json");
  f.fix = "unset NCCL_IB_DISABLE   # and look for NET/IB in the log of NCCL_DEBUG=INFO";
  f.confidence = Confidence::kLikely;
}

}  // namespace

const Rule kIbDisabled = {
    .id = "ib-disabled",
    .severity = Severity::kWarning,
    .title = "InfiniBand is switched off for a job on several nodes",
    .explanation =
        "NCCL_IB_DISABLE=1 sends everything between nodes through sockets: a tenth of the bandwidth, and CPU "
        "time. It is often left over from a container in which InfiniBand was not visible.",
    .source = "NCCL's documentation of environment variables; public report Tutel 160",
    .check = check,
};

}  // namespace moetax::doctor
