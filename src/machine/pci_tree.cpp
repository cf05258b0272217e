#include "machine/pci_tree.h"

#include <algorithm>
#include <limits>

#include "moetax/base/text.h"

namespace moetax {
namespace {

std::string_view without_0x(std::string_view text) {
  if (text.starts_with("0x")) text.remove_prefix(2);
  return text;
}

}  // namespace

int PciTree::add(const PciNode& node) {
  nodes_.push_back(node);
  return static_cast<int>(nodes_.size()) - 1;
}

int PciTree::depth(int node) const {
  int depth = 0;
  for (; node >= 0; node = nodes_[static_cast<std::size_t>(node)].parent) ++depth;
  return depth;
}

int PciTree::common_ancestor(int a, int b) const {
  int depth_a = depth(a), depth_b = depth(b);
  while (a != b) {
    int& deeper = depth_a >= depth_b ? a : b;
    --(depth_a >= depth_b ? depth_a : depth_b);
    deeper = nodes_[static_cast<std::size_t>(deeper)].parent;
  }
  return a;
}

int PciTree::locality(int node) const {
  const auto is_locality = [&](PciNodeKind kind) {
    return kind == PciNodeKind::kLocality || kind == PciNodeKind::kVague;
  };
  while (node >= 0 && !is_locality(nodes_[static_cast<std::size_t>(node)].kind)) {
    node = nodes_[static_cast<std::size_t>(node)].parent;
  }
  return node;
}

int PciTree::bridges(int from, int below) const {
  int count = 0;
  for (; from != below; from = nodes_[static_cast<std::size_t>(from)].parent) {
    count += nodes_[static_cast<std::size_t>(from)].kind == PciNodeKind::kBridge;
  }
  return count;
}

// The narrowest link from `from` up to `below`; 0 when one is unknown.
double PciTree::gbs(int from, int below) const {
  double narrowest = std::numeric_limits<double>::infinity();
  for (; from != below; from = nodes_[static_cast<std::size_t>(from)].parent) {
    const PciNode& node = nodes_[static_cast<std::size_t>(from)];
    if (node.kind == PciNodeKind::kBridge || node.kind == PciNodeKind::kDevice)
      narrowest = std::min(narrowest, node.gbs);
  }
  return narrowest;
}

LinkKind PciTree::class_at(int a, int b, int common) const {
  if (common < 0) return LinkKind::kSys;
  switch (nodes_[static_cast<std::size_t>(common)].kind) {
    case PciNodeKind::kHostBridge:
      return LinkKind::kPhb;
    case PciNodeKind::kBridge:
    case PciNodeKind::kDevice: {
      const int most = std::max(bridges(a, common), bridges(b, common));
      return most <= bridges_below_ ? LinkKind::kPix : LinkKind::kPxb;
    }
    case PciNodeKind::kLocality:
    case PciNodeKind::kVague:
      break;
  }
  const int near_a = locality(a), near_b = locality(b);
  const auto vague = [&](int node) { return nodes_[static_cast<std::size_t>(node)].kind == PciNodeKind::kVague; };
  if (vague(near_a) || vague(near_b)) return LinkKind::kUnknown;
  return near_a == near_b ? LinkKind::kNode : LinkKind::kSys;
}

Link PciTree::between(int a, int b) const {
  const int common = common_ancestor(a, b);
  Link link{.kind = class_at(a, b, common)};
  if (a == b || link.kind >= LinkKind::kSys) return link;
  link.gbs = std::min(gbs(a, common), gbs(b, common));
  if (link.gbs > 0) link.source = "the narrowest PCIe link of the way, from speed and width in the file";
  return link;
}

double pcie_gbs(std::string_view speed, int lanes) {
  constexpr double kLineCoding3 = 128.0 / 130.0;  // from generation 3, 8 GT/s, on
  constexpr double kLineCoding1 = 8.0 / 10.0;
  const auto gigatransfers = parse_number<double>(speed.substr(0, speed.find(' ')));
  if (!gigatransfers || !(*gigatransfers > 0 && *gigatransfers <= 256) || lanes < 1 || lanes > 32) return 0;
  return *gigatransfers * lanes / 8 * (*gigatransfers < 8 ? kLineCoding1 : kLineCoding3);
}

bool is_gpu_class(std::string_view pci_class, std::string_view vendor) {
  const std::string_view base = without_0x(pci_class).substr(0, 4);
  if (base == "0300") return gpu_vendor(vendor) == "NVIDIA" || gpu_vendor(vendor) == "AMD";
  if (base != "0302" && base != "0380" && base != "1200") return false;
  return vendor.empty() || !gpu_vendor(vendor).empty();
}

bool is_network_class(std::string_view pci_class) {
  const std::string_view base = without_0x(pci_class).substr(0, 4);
  return base == "0200" || base == "0207";  // Ethernet, InfiniBand
}

std::string_view gpu_vendor(std::string_view vendor) {
  vendor = without_0x(vendor);
  if (vendor == "10de") return "NVIDIA";
  if (vendor == "1002") return "AMD";
  if (vendor == "8086") return "Intel";
  return "";
}

}  // namespace moetax
