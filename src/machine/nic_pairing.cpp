// Which network adapter each GPU should use, and the environment that makes libraries use it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "moetax/machine/topology_facts.h"

namespace moetax {
namespace {

std::size_t nic_slot(const Topology& topology, int nic) {
  return static_cast<std::size_t>(nic - topology.gpus());
}

GpuNics nearest_nics(const Topology& topology, int gpu) {
  GpuNics found{.gpu = gpu, .link = {}, .nearest = {}};
  for (int nic = topology.gpus(); nic < topology.gpus() + topology.nics(); ++nic) {
    const Link& link = topology.link(gpu, nic);
    if (link.kind == LinkClass::kUnknown || slower(link, found.link)) continue;
    if (slower(found.link, link)) found.nearest.clear();
    found.link = link;
    found.nearest.push_back(nic);
  }
  return found;
}

NicRole role_of(const Topology& topology, const NicPairing& pairing, int nic) {
  bool known = false;
  bool far = true;
  for (const GpuNics& gpu : pairing.gpus) {
    const LinkClass kind = topology.link(gpu.gpu, nic).kind;
    known = known || kind != LinkClass::kUnknown;
    far = far && (kind == LinkClass::kSys || kind == LinkClass::kUnknown);
    if (std::find(gpu.nearest.begin(), gpu.nearest.end(), nic) != gpu.nearest.end()) return NicRole::kRail;
  }
  if (!known) return NicRole::kUnknown;
  return far ? NicRole::kFar : NicRole::kSpare;
}

// NCCL_IB_HCA names adapters of the verbs interface; those of other fabrics come with libraries of their own. A name is
// for a shell to read, and came from a file.
bool is_verbs_adapter(std::string_view name) {
  constexpr std::string_view kOthers[] = {"cxi", "efa", "rdmap", "eth", "ens", "eno", "enp", "bond"};
  constexpr std::string_view kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";
  return name.find_first_not_of(kPlain) == std::string_view::npos &&
         std::none_of(std::begin(kOthers), std::end(kOthers),
                      [&](std::string_view prefix) { return name.starts_with(prefix); });
}

void add_device_order(const Topology& topology, int ep_size, EnvironmentLines& out) {
  const EpGrouping best = best_ep_groups(topology, ep_size);
  if (!slower(slowest_link(consecutive_ep_groups(topology, ep_size)), slowest_link(best))) return;
  std::vector<int> order;
  for (const EpGroup& group : best.groups) {
    for (const int gpu : group.gpus) order.push_back(topology.device(gpu).index);
  }
  for (const int gpu : best.left_over) order.push_back(topology.device(gpu).index);
  if (topology.device(0).vendor == "AMD") {
    out.lines.push_back(fmt::format("HIP_VISIBLE_DEVICES={}", fmt::join(order, ",")));
    return;
  }
  out.lines.emplace_back("CUDA_DEVICE_ORDER=PCI_BUS_ID");
  out.lines.push_back(fmt::format("CUDA_VISIBLE_DEVICES={}", fmt::join(order, ",")));
}

void add_adapters(const Topology& topology, EnvironmentLines& out) {
  const NicPairing pairing = pair_nics(topology);
  std::vector<std::string> rails, nameless;
  bool others = false;
  for (int nic = topology.gpus(); nic < topology.gpus() + topology.nics(); ++nic) {
    const Device& device = topology.device(nic);
    if (pairing.roles[nic_slot(topology, nic)] != NicRole::kRail) {
      others = true;
    } else if (device.adapter.empty()) {
      nameless.push_back(device.name);
    } else if (is_verbs_adapter(device.adapter)) {
      rails.push_back(device.adapter);
    }
  }
  if (!others) return;
  if (!nameless.empty()) {
    out.withheld.push_back(
        fmt::format("NCCL_IB_HCA should list the adapters {}, whose names are not in the file; the "
                    "NIC legend of `nvidia-smi topo -m` has them",
                    fmt::join(nameless, ", ")));
  } else if (!rails.empty()) {
    // The second '=' asks for these very names; without it mlx5_1 would also mean mlx5_10.
    out.lines.push_back(fmt::format("NCCL_IB_HCA=={}", fmt::join(rails, ",")));
  }
}

}  // namespace

NicPairing pair_nics(const Topology& topology) {
  NicPairing pairing;
  std::vector<int> users(static_cast<std::size_t>(topology.nics()), 0);
  for (int gpu = 0; gpu < topology.gpus(); ++gpu) {
    GpuNics nics = nearest_nics(topology, gpu);
    if (!nics.nearest.empty()) {
      nics.nic = *std::min_element(nics.nearest.begin(), nics.nearest.end(), [&](int a, int b) {
        return users[nic_slot(topology, a)] < users[nic_slot(topology, b)];
      });
      pairing.most_gpus_per_nic = std::max(pairing.most_gpus_per_nic, ++users[nic_slot(topology, nics.nic)]);
    }
    pairing.gpus.push_back(std::move(nics));
  }
  for (int nic = topology.gpus(); nic < topology.gpus() + topology.nics(); ++nic) {
    pairing.roles.push_back(role_of(topology, pairing, nic));
  }
  return pairing;
}

EnvironmentLines environment_lines(const Topology& topology, int ep_size) {
  EnvironmentLines out;
  if (ep_size >= 2 && ep_size <= topology.gpus()) add_device_order(topology, ep_size, out);
  add_adapters(topology, out);
  return out;
}

}  // namespace moetax
