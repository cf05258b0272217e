// Reader of the XML that hwloc writes (`lstopo machine.xml`), versions 1 and 2.
#include <fmt/format.h>

#include <map>
#include <optional>
#include <utility>

#include "machine/topology_readers.h"
#include "machine/xml_text.h"
#include "moetax/base/text.h"

namespace moetax {
namespace {

constexpr double kGbsPerMegabyte = 1e-3;
constexpr std::size_t kMaxMatrix = 1 << 16;  // values of one distance matrix

// A nodeset of one NUMA node ("0x00000002"); -1 for any other.
int single_node(std::string_view nodeset) {
  int node = -1, base = 0;
  for (auto c = nodeset.rbegin(); c != nodeset.rend() && *c != 'x'; ++c) {
    if (*c == ',') continue;
    const auto digit = std::string_view("0123456789abcdef").find(*c);
    if (digit == std::string_view::npos || base > 4096) return -1;
    for (int bit = 0; bit < 4; ++bit) {
      if ((digit >> bit & 1U) == 0) continue;
      if (node >= 0) return -1;
      node = base + bit;
    }
    base += 4;
  }
  return node;
}

// "0302 [10de:20b0] [10de:1450] a1"
std::string_view vendor_of(std::string_view pci_type) {
  const std::size_t open = pci_type.find('[');
  return open == std::string_view::npos ? std::string_view{} : pci_type.substr(open + 1, 4);
}

int count_numa_nodes(const pugi::xml_node& node, int depth) {
  int count = attribute(node, "type") == "NUMANode";
  if (depth > kMaxXmlDepth) return count;
  for (const pugi::xml_node child : node.children("object")) count += count_numa_nodes(child, depth + 1);
  return count;
}

class LstopoReader {
 public:
  explicit LstopoReader(const XmlText& xml) : xml_(xml) {}

  std::optional<Topology> read(const pugi::xml_node& root) {
    const pugi::xml_node machine = root.find_child_by_attribute("object", "type", "Machine");
    several_nodes_ = count_numa_nodes(machine, 0) > 1;
    take(machine, -1, -1, 0);
    if (devices_.empty()) return std::nullopt;
    number_devices(devices_);
    Topology topology = place_devices(TopologyFormat::kLstopoXml, xml_.line_of(root), devices_, tree_);
    if (!add_direct_links(root, topology) && topology.gpus() > 1) {
      for (int a = 0; a < topology.gpus(); ++a) {
        for (int b = a + 1; b < topology.gpus(); ++b) topology.set_link(a, b, {});
      }
      topology.skip(0,
                    "holds no matrix of NVLink or XGMI bandwidths, which lstopo writes when it is built with NVML or "
                    "ROCm SMI: what joins the GPUs is not in this file, their links are unknown");
    }
    return topology;
  }

 private:
  void take(const pugi::xml_node& object, int parent, int numa_node, int depth) {
    if (depth > kMaxXmlDepth) return;
    const std::string_view type = attribute(object, "type");
    const int single = single_node(attribute(object, "nodeset"));
    if (single >= 0) numa_node = single;
    int node = parent;
    if (type == "Bridge") {
      const bool host = attribute(object, "bridge_type").starts_with("0");
      node = tree_.add({parent, host ? PciNodeKind::kHostBridge : PciNodeKind::kBridge, gbs_of(object)});
    } else if (type == "PCIDev") {
      node = tree_.add({parent, PciNodeKind::kDevice, gbs_of(object)});
      take_device(object, node, numa_node);
    } else if (type == "Machine" || type == "Package" || type == "Socket" || type == "Group" || type == "Die") {
      const bool vague = several_nodes_ && single < 0;
      node = tree_.add({parent, vague ? PciNodeKind::kVague : PciNodeKind::kLocality});
    }
    for (const pugi::xml_node child : object.children("object")) take(child, node, numa_node, depth + 1);
  }

  static double gbs_of(const pugi::xml_node& object) {
    const auto gbs = parse_number<double>(attribute(object, "pci_link_speed")).value_or(0);
    return gbs > 0 && gbs < 1e6 ? gbs : 0;
  }

  void take_device(const pugi::xml_node& object, int node, int numa_node) {
    const std::string_view type = attribute(object, "pci_type");
    const bool gpu = is_gpu_class(type, vendor_of(type));
    if (!gpu && !is_network_class(type)) return;
    Device device{gpu ? DeviceKind::kGpu : DeviceKind::kNic, -1};
    device.bus_id = printable(attribute(object, "pci_busid"), kMaxName);
    device.numa_node = numa_node;
    if (gpu) device.vendor = gpu_vendor(vendor_of(type));
    const auto position = devices_.size();
    bool verbs = false;
    for (const pugi::xml_node os : object.children("object")) {
      if (attribute(os, "type") != "OSDev") continue;
      os_device_[parse_number<unsigned long>(attribute(os, "gp_index")).value_or(0)] = device.bus_id;
      const std::string_view kind = attribute(os, "osdev_type");
      if (gpu || verbs || (kind != "2" && kind != "3" && kind != "Network" && kind != "OpenFabrics")) continue;
      verbs = kind == "3" || kind == "OpenFabrics";
      device.name = device.adapter = printable(attribute(os, "name"), kMaxName);
    }
    if (position < static_cast<std::size_t>(4 * Topology::kMaxDevices))
      devices_.push_back({std::move(device), node, object});
  }

  // Bandwidths between GPUs in MB/s, each GPU by the number of its device of the operating system. Pairs with none have
  // no direct link; PCI is their way.
  bool add_direct_links(const pugi::xml_node& root, Topology& topology) {
    bool found = false;
    for (const pugi::xml_node matrix : root.children()) {
      const std::string_view name = attribute(matrix, "name");
      const bool xgmi = name == "XGMIBandwidth";
      if (!std::string_view(matrix.name()).starts_with("distances2") || (name != "NVLinkBandwidth" && !xgmi)) continue;
      std::vector<int> gpus;
      for (const unsigned long index : numbers(matrix, "indexes")) gpus.push_back(gpu_of(topology, index));
      const std::vector<unsigned long> values = numbers(matrix, "u64values");
      if (gpus.empty() || values.size() != gpus.size() * gpus.size()) {
        topology.skip(xml_.line_of(matrix), fmt::format("<{}> is not complete; not used", matrix.name()).substr(0, 80));
        continue;
      }
      found = true;
      for (std::size_t a = 0; a < gpus.size(); ++a) {
        for (std::size_t b = a + 1; b < gpus.size(); ++b) {
          const unsigned long value = std::min(values[a * gpus.size() + b], values[b * gpus.size() + a]);
          if (gpus[a] < 0 || gpus[b] < 0 || gpus[a] == gpus[b] || value == 0 || value > 1'000'000'000) continue;
          topology.set_link(gpus[a], gpus[b],
                            {xgmi ? LinkKind::kXgmi : LinkKind::kNvlink, 0, xgmi ? 1 : 0,
                             static_cast<double>(value) * kGbsPerMegabyte, "the file's own matrix"});
        }
      }
    }
    return found;
  }

  // All numbers in the text of the children called `name`; "OSDev:12" counts as 12.
  static std::vector<unsigned long> numbers(const pugi::xml_node& matrix, const char* name) {
    std::vector<unsigned long> all;
    for (const pugi::xml_node part : matrix.children(name)) {
      Splitter words(part.child_value(), ' ');
      while (auto word = words.next()) {
        word->remove_prefix(std::min(word->find(':') + 1, word->size()));
        if (const auto value = parse_number<unsigned long>(*word); value && all.size() < kMaxMatrix)
          all.push_back(*value);
      }
    }
    return all;
  }

  int gpu_of(const Topology& topology, unsigned long os_device) const {
    const auto bus_id = os_device_.find(os_device);
    for (int gpu = 0; gpu < topology.gpus() && bus_id != os_device_.end(); ++gpu) {
      if (topology.device(gpu).bus_id == bus_id->second) return gpu;
    }
    return -1;
  }

  const XmlText& xml_;
  PciTree tree_{PciTree::Switches::kBridgePerPort};
  bool several_nodes_ = false;
  std::vector<PlacedDevice> devices_;
  std::map<unsigned long, std::string> os_device_;  // bus id by gp_index
};

}  // namespace

std::vector<Topology> parse_lstopo_xml(const XmlText& xml) {
  std::vector<Topology> machines;
  for (const pugi::xml_node root : xml.document.children("topology")) {
    if (machines.size() == kMaxXmlMachines) break;
    if (auto machine = LstopoReader(xml).read(root)) machines.push_back(std::move(*machine));
  }
  return machines;
}

}  // namespace moetax
