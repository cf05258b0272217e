#include <fmt/format.h>

#include "doctor/rules/rules.h"
#include "moetax/base/units.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const Settings::Names kBytes = {"DEV_SHM_BYTES"};
  const auto bytes = facts.job.settings.number(kBytes);
  const auto events = facts.log->of(LogKind::kSharedMemory);
  const bool small = bytes && *bytes > 0 && *bytes < 0x1p29;
  bool refused = false;
  for (const LogEvent* event : events)
    refused = refused || contains(event->at.text, "fail") || contains(event->at.text, "error");
  if (!small && !refused) return;
  Finding& f = out.add(rule, small ? fmt::format("/dev/shm holds {}", units::bytes_text(*bytes)) : "/dev/shm is full");
  f.cause = "NCCL's buffers between ranks of a node do not fit.";
  f.evidence = {small ? facts.job.settings.where(kBytes) : events.front()->at};
  f.cost.text = "communicators fail to open, or ranks die by a bus error";
  f.fix = "docker run --shm-size=16g   # or --ipc=host; Kubernetes: an emptyDir with medium Memory at /dev/shm";
  f.confidence = refused ? Confidence::kCertain : Confidence::kLikely;
}

}  // namespace

const Rule kSharedMemorySmall = {
    .id = "shared-memory-small",
    .severity = Severity::kWarning,
    .title = "too little shared memory for NCCL",
    .explanation =
        "NCCL passes data of ranks on one node through /dev/shm where they are not linked directly, some tens "
        "of MiB for each pair. Containers start with 64 MiB, and the error comes when a communicator opens, "
        "or as a bus error later.",
    .source = "NCCL's documentation of troubleshooting",
    .check = check,
};

}  // namespace moetax::doctor
