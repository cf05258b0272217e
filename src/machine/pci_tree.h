// Where devices hang in a machine's PCI hierarchy, and what lies between two of them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "moetax/machine/topology.h"

namespace moetax {

enum class PciNodeKind : std::uint8_t {
  kLocality,    // a package, NUMA node or group of them that host bridges belong to
  kVague,       // a locality of several NUMA nodes that does not say which of them its devices are near
  kHostBridge,  // where PCI begins
  kBridge,
  kDevice,
};

struct PciNode {
  int parent = -1;  // -1: a root
  PciNodeKind kind = PciNodeKind::kDevice;
  double gbs = 0;  // of the link to the parent, one direction; 0 where unknown
};

class PciTree {
 public:
  // A switch shows as one bridge, or as one for its way up and one for each way down.
  enum class Switches : std::uint8_t { kOneBridge, kBridgePerPort };
  explicit PciTree(Switches switches) : bridges_below_(switches == Switches::kOneBridge ? 0 : 1) {}

  int add(const PciNode& node);  // returns its number; its parent was added before
  // What traffic between two devices crosses. Roots in common are taken for one machine's, so devices without a common
  // ancestor are a NUMA interconnect apart.
  Link between(int a, int b) const;

 private:
  int depth(int node) const;
  int common_ancestor(int a, int b) const;
  int locality(int node) const;
  int bridges(int from, int below) const;
  double gbs(int from, int below) const;
  LinkKind class_at(int a, int b, int common) const;

  int bridges_below_;  // a switch's that do not count, on either way to the common one
  std::vector<PciNode> nodes_;
};

// GB/s in one direction of a PCIe link as drivers describe it: "16.0 GT/s PCIe" and a width of 16; 0 when either is not
// a number. Less line coding, before packets' headers.
double pcie_gbs(std::string_view speed, int lanes);

// Whether a PCI class ("0302", "030200", with or without "0x") and a vendor ("10de", or "" where unknown) are those of
// an accelerator. Plain VGA counts for vendors of GPUs alone: boards have one for their console.
bool is_gpu_class(std::string_view pci_class, std::string_view vendor);
bool is_network_class(std::string_view pci_class);
std::string_view gpu_vendor(std::string_view vendor);  // "NVIDIA", "AMD", "Intel", or ""

}  // namespace moetax
