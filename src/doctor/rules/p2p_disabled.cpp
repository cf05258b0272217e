#include <fmt/format.h>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const Settings::Names kDisable = {"NCCL_P2P_DISABLE"};
  if (!facts.job.settings.on(kDisable)) return;
  for (const TopologyFacts& entry : facts.all_topologies()) {
    const Link fastest = entry.topology.fastest();
    if (fastest.kind != LinkKind::kNvlink && fastest.kind != LinkKind::kXgmi) continue;
    Finding& f = out.add(rule, fmt::format("{} between GPUs is not used", link_text(fastest)));
    f.cause = "NCCL_P2P_DISABLE=1 sends what NVLink or XGMI would carry through the host's memory.";
    f.evidence = {facts.job.settings.where(kDisable), {entry.file, entry.topology.line(), link_text(fastest)}};
    f.cost.text = fastest.gbs > 0 ? fmt::format("{:.0f} GB/s a direction left unused", fastest.gbs)
                                  : "cannot be priced without the rate of the link";
    f.fix = "unset NCCL_P2P_DISABLE";
    f.confidence = Confidence::kCertain;
    return;
  }
}

}  // namespace

const Rule kP2pDisabled = {
    .id = "p2p-disabled",
    .severity = Severity::kWarning,
    .title = "direct copies between GPUs are switched off",
    .explanation =
        "NCCL_P2P_DISABLE=1 sends everything between the GPUs of a node through the host's memory. On "
        "machines with NVLink that costs an order of magnitude. On PCIe machines whose root complex is slow "
        "it can be right for all-to-all.",
    .source = "NCCL's documentation of environment variables",
    .check = check,
};

}  // namespace moetax::doctor
