#include <fmt/format.h>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const Settings::Names kBytes = {"LOCKED_MEMORY_BYTES"};
  const auto bytes = facts.job.settings.number(kBytes);
  const auto events = facts.log->of(LogKind::kLockedMemory);
  bool refused = false;
  for (const LogEvent* event : events) {
    refused = refused || contains(event->at.text, "fail") || contains(event->at.text, "cannot allocate");
  }
  // A low limit matters where there are adapters to register with.
  bool adapters = false;
  for (const TopologyFacts& entry : facts.all_topologies()) adapters = adapters || entry.topology.nics() > 0;
  const bool small = bytes && *bytes < 0x1p30 && adapters;
  if (!small && !refused) return;
  Finding& f = out.add(rule, small ? fmt::format("only {:.0f} KiB of memory may be locked", *bytes / 1024)
                                   : "memory cannot be registered with the adapter");
  f.cause = "RDMA buffers have to be locked.";
  f.evidence = {refused ? events.front()->at : facts.job.settings.where(kBytes)};
  f.cost.text = "sockets instead of RDMA, or no start";
  f.fix = "ulimit -l unlimited   # docker run --ulimit memlock=-1; Slurm: PropagateResourceLimitsExcept=MEMLOCK";
  f.confidence = refused ? Confidence::kCertain : Confidence::kPossible;
}

}  // namespace

const Rule kLockedMemorySmall = {
    .id = "locked-memory-small",
    .severity = Severity::kWarning,
    .title = "too little memory may be locked for RDMA",
    .explanation =
        "Adapters read and write memory that is locked. With a low limit (64 KiB is usual outside containers "
        "made for it) registering buffers fails, and NCCL falls back to sockets or stops.",
    .source = "NCCL's documentation of troubleshooting",
    .check = check,
};

}  // namespace moetax::doctor
