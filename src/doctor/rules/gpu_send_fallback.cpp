#include <fmt/format.h>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const auto events = facts.log->of(LogKind::kGpuFallback);
  if (events.empty()) return;
  Finding& f = out.add(rule, "sends between nodes are started by the CPU, not by the GPU");
  f.cause = "the adapter's doorbell could not be mapped for the GPU; NVSHMEM fell back to a CPU thread.";
  f.evidence = {events.front()->at};
  f.cost.text =
      "latency of each message; bandwidth of large ones may be the same: compare with the line rate of the NIC";
  const double gbs = facts.node_gbs();
  if (gbs > 0) f.cost.text += fmt::format(" ({:.3g} GB/s a rank here)", gbs);
  f.fix =
      "options nvidia NVreg_EnableStreamMemOPs=1 NVreg_RegistryDwords=\"PeerMappingOverride=1;\" in "
      "/etc/modprobe.d/nvidia.conf, then update-initramfs -u and reboot";
  f.confidence = Confidence::kCertain;
}

}  // namespace

const Rule kGpuSendFallback = {
    .id = "gpu-send-fallback",
    .severity = Severity::kWarning,
    .title = "sends that the GPU was to start itself go through the CPU",
    .explanation =
        "DeepEP wants the GPU to ring the adapter's doorbell. Where mapping the doorbell fails, NVSHMEM says "
        "so once and lets a CPU thread do it: more latency for every message, and a core per rank. The "
        "adapter's driver needs PeerMappingOverride and the nvidia_peermem or GDRCopy modules.",
    .source = "public report DeepEP 397",
    .check = check,
};

}  // namespace moetax::doctor
