#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const Settings& s = facts.job.settings;
  const Settings::Names kConnections = {"CUDA_DEVICE_MAX_CONNECTIONS"};
  const Settings::Names kOverlap = {"overlap_moe_expert_parallel_comm", "A2A_OVERLAP", "enable_two_batch_overlap"};
  if (s.whole(kConnections) != 1 || !s.on(kOverlap)) return;
  Finding& f = out.add(rule, "one hardware queue for an exchange that is to be overlapped");
  f.cause = "kernels of all streams start in the order they were launched.";
  f.evidence = {s.where(kConnections), s.where(kOverlap)};
  f.cost = facts.job.ep_nodes() && *facts.job.ep_nodes() > 1 ? price_between_nodes(facts, *facts.job.ep_nodes())
                                                             : cannot_price("a profile: the exchange is not hidden");
  f.fix = "export CUDA_DEVICE_MAX_CONNECTIONS=32";
  f.confidence = Confidence::kLikely;
}

}  // namespace

const Rule kConnectionsSerialise = {
    .id = "connections-serialise",
    .severity = Severity::kWarning,
    .title = "one hardware queue where work should overlap",
    .explanation =
        "CUDA_DEVICE_MAX_CONNECTIONS=1 puts all streams into one queue in the order of launching. Tensor "
        "parallelism with sequence parallelism once needed that; overlapping the expert exchange needs "
        "several, or the exchange stands before the work that was to hide it.",
    .source = "Megatron's documentation of overlap for expert parallelism; its own recipes set 32",
    .check = check,
};

}  // namespace moetax::doctor
