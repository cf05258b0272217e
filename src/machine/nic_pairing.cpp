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
    if (link.kind == LinkKind::kUnknown || slower(link, found.link)) continue;
    if (slower(found.link, link)) found.nearest.clear();
    found.link = link;
    found.nearest.push_back(nic);
  }
  return found;
}

NicRole role_of(const Topology& topology, const NicPairing& pairing, int nic) {
  bool known = true;
  bool far = true;
  for (const GpuNics& gpu : pairing.gpus) {
    const LinkKind kind = topology.link(gpu.gpu, nic).kind;
    known = known && kind != LinkKind::kUnknown;
    far = far && kind == LinkKind::kSys;
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

// Pairs of GPUs of a group that have a link of the machine's fastest class.
int fast_pairs(const Topology& topology, const EpGrouping& grouping) {
  const LinkKind fastest = topology.fastest().kind;
  int count = 0;
  for (const EpGroup& group : grouping.groups) {
    for (std::size_t i = 0; i < group.gpus.size(); ++i) {
      for (std::size_t j = i + 1; j < group.gpus.size(); ++j) {
        count += topology.link(group.gpus[i], group.gpus[j]).kind == fastest;
      }
    }
  }
  return count;
}

// Worth another order of devices: a faster slowest link, or as fast a one and more pairs on the fastest. Never because
// of links that are not known.
bool better(const Topology& topology, const EpGrouping& grouping, const EpGrouping& than) {
  const Link link = slowest_link(grouping), other = slowest_link(than);
  if (link.kind == LinkKind::kUnknown || other.kind == LinkKind::kUnknown) return false;
  if (slower(other, link)) return true;
  return !slower(link, other) && fast_pairs(topology, grouping) > fast_pairs(topology, than);
}

void add_device_order(const Topology& topology, int ep_size, EnvironmentLines& out) {
  const EpGrouping best = best_ep_groups(topology, ep_size);
  if (!better(topology, best, consecutive_ep_groups(topology, ep_size))) return;
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
  bool others = false, unknown = false;
  for (const GpuNics& gpu : pairing.gpus) unknown = unknown || gpu.nic < 0;
  for (int nic = topology.gpus(); nic < topology.gpus() + topology.nics(); ++nic) {
    const Device& device = topology.device(nic);
    const NicRole role = pairing.roles[nic_slot(topology, nic)];
    if (role != NicRole::kRail) {
      others = true;
      unknown = unknown || role == NicRole::kUnknown;
    } else if (device.adapter.empty()) {
      nameless.push_back(device.name);
    } else if (is_verbs_adapter(device.adapter)) {
      rails.push_back(device.adapter);
    }
  }
  if (!others) return;
  if (unknown) {
    if (rails.size() + nameless.size() > 0) {
      out.withheld.emplace_back("NCCL_IB_HCA: the adapters near some GPUs are not known, so none can be left out");
    }
    return;
  }
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
