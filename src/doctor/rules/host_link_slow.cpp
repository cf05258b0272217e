#include <fmt/format.h>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

// GB/s from the host in one direction, as data sheets have it; less what packets cost.
double usual_gbs(std::string_view gpu) {
  for (const std::string_view name : {"GH200", "GB200", "GB300"}) {
    if (contains(gpu, name)) return 400;
  }
  for (const std::string_view name : {"H100", "H200", "H800", "H20", "B200", "B300", "MI300", "RTX PRO", "5090"}) {
    if (contains(gpu, name)) return 52;
  }
  for (const std::string_view name : {"A100", "A800", "4090", "3090", "L40", "A6000", "MI2"}) {
    if (contains(gpu, name)) return 24;
  }
  return 0;
}

void check(const Facts& facts, const Rule& rule, Findings& out) {
  for (const HostLinkFacts& entry : facts.all_host_links()) {
    const double slowest = entry.measured.slowest("host_to_device_memcpy");
    const std::string gpu = entry.measured.devices.empty() ? "" : entry.measured.devices.front();
    const double usual = usual_gbs(gpu);
    if (slowest <= 0 || usual <= 0 || slowest > 0.5 * usual) continue;
    Finding& f =
        out.add(rule, fmt::format("the host sends {:.4g} GB/s to a GPU, about {:.0f} are usual", slowest, usual));
    f.cause = fmt::format("measured on {}.", gpu);
    f.evidence = {{entry.file, entry.measured.tests.empty() ? 0 : entry.measured.tests.front().line,
                   fmt::format("host_to_device_memcpy: {:.4g} GB/s", slowest)}};
    f.cost.text = fmt::format("what is offloaded takes {:.1f}x the planned time to come back", usual / slowest);
    f.fix =
        "nvidia-smi -q -d PCIE (current against maximal link generation and width); numactl --cpunodebind near the GPU";
    f.confidence = Confidence::kLikely;
  }
}

}  // namespace

const Rule kHostLinkSlow = {
    .id = "host-link-slow",
    .severity = Severity::kWarning,
    .title = "a link to the host far below its kind",
    .explanation =
        "Plans for offload assume the rate of a data sheet. Measured it may be a third: a card in a slot with few "
        "lanes, an older generation negotiated, a GPU on the far socket, both directions at once. What offload and "
        "overlap can hide follows from the measured rate.",
    .source = "public report Megatron-LM 6491; rates of PCI Express and NVLink-C2C data sheets",
    .check = check,
};

}  // namespace moetax::doctor
