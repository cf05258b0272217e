// What is known of the machines: topologies, measured links, GPUs.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "doctor/facts.h"
#include "moetax/base/units.h"
#include "moetax/machine/topology_facts.h"

namespace moetax::doctor {
namespace {

// Dense bf16 rates and memory of data sheets. Longer names first.
struct Sheet {
  std::string_view name;
  double memory_gib;
  double tflops;
};
constexpr std::array kSheets = {
    Sheet{"h100 nvl", 94, 835}, Sheet{"h200", 141, 989},    Sheet{"h100", 80, 989},
    Sheet{"h800", 80, 989},     Sheet{"h20", 96, 148},      Sheet{"gb200", 186, 2500},
    Sheet{"b300", 288, 2500},   Sheet{"b200", 180, 2250},   Sheet{"a100-sxm4-80gb", 80, 312},
    Sheet{"a100", 0, 312},      Sheet{"mi300x", 192, 1307},
};

}  // namespace

std::optional<GpuFacts> find_gpu(std::string_view text) {
  for (const Sheet& sheet : kSheets) {
    if (contains(text, sheet.name)) return GpuFacts{std::string(sheet.name), sheet.memory_gib, sheet.tflops};
  }
  return std::nullopt;
}

double Facts::host_gbs() const {
  double slowest = 0;
  for (const HostLinkFacts& entry : all_host_links()) {
    const double gbs = entry.measured.slowest("host_to_device_memcpy");
    if (gbs > 0) slowest = slowest == 0 ? gbs : std::min(slowest, gbs);
  }
  return slowest;
}

double Facts::node_gbs() const {
  if (measured && measured->nodes > 1 && measured->gbs > 0) return measured->gbs;
  // Of several machines the slowest sets the pace.
  double slowest = 0;
  for (const TopologyFacts& entry : all_topologies()) {
    const Topology& topology = entry.topology;
    if (topology.gpus() == 0 || topology.nics() == 0) return 0;
    const NicPairing pairing = pair_nics(topology);
    double sum = 0;
    for (int i = 0; i < topology.nics(); ++i) {
      if (pairing.roles[static_cast<std::size_t>(i)] == NicRole::kRail) sum += topology.device(topology.gpus() + i).gbs;
    }
    const double share = sum / topology.gpus();
    if (share <= 0) return 0;
    slowest = slowest == 0 ? share : std::min(slowest, share);
  }
  return slowest;
}

std::string describe(const Topology& topology) {
  std::string text = fmt::format("{}: {} GPUs, {} adapters", topology_format_name(topology.format()), topology.gpus(),
                                 topology.nics());
  const auto found = islands(topology);
  if (topology.gpus() > 1) {
    text += fmt::format(", fastest link {}, {} island{} of it, slowest {}", link_text(topology.fastest()), found.size(),
                        found.size() == 1 ? "" : "s", link_text(topology.slowest()));
  }
  return text;
}

std::string describe(const FlightDump& dump) {
  std::int64_t unfinished = 0;
  for (const FlightCall& call : dump.calls) unfinished += call.state == FlightState::kCompleted ? 0 : 1;
  return fmt::format("flight recorder of rank {}: {} calls in {} groups, {} not ended",
                     dump.rank < 0 ? "?" : std::to_string(dump.rank), dump.calls.size(), dump.groups.size(),
                     unfinished);
}

std::string describe(const InspectorDump& dump) {
  std::set<std::string_view> communicators, ops;
  double us = 0;
  for (const InspectorCall& call : dump.calls) {
    communicators.insert(call.communicator);
    ops.insert(call.op);
    us += call.us;
  }
  return fmt::format("NCCL inspector: {} calls of {} in {} communicator{}, {} together", dump.calls.size(),
                     fmt::join(ops, ", "), communicators.size(), communicators.size() == 1 ? "" : "s",
                     units::time_text(us));
}

std::string describe(const Nvbandwidth& measured) {
  std::string text = "nvbandwidth:";
  for (const auto& [name, words] :
       {std::pair{"host_to_device_memcpy", "host to GPU"}, std::pair{"device_to_host_memcpy", "GPU to host"}}) {
    const double gbs = measured.slowest(name);
    if (gbs > 0) text += fmt::format("{} {} {:.4g} GB/s at least", text.ends_with(":") ? "" : ",", words, gbs);
  }
  return text.ends_with(":") ? fmt::format("nvbandwidth: {} tests", measured.tests.size()) : text;
}

std::string describe(const NcclLog& log) {
  std::int64_t p2p = 0, shm = 0, net = 0;
  for (const NcclEdge& edge : log.edges) {
    p2p += edge.transport == NcclTransport::kP2p ? 1 : 0;
    shm += edge.transport == NcclTransport::kShm ? 1 : 0;
    net += edge.transport == NcclTransport::kNet ? 1 : 0;
  }
  return fmt::format("{}{}: {} communicators; connections: {} direct, {} through host memory, {} over the network",
                     log.rccl ? "RCCL" : "NCCL", log.version.empty() ? "" : " " + log.version, log.communicators.size(),
                     p2p, shm, net);
}

}  // namespace moetax::doctor
