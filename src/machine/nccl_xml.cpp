// Reader of NCCL's and RCCL's topology XML: files for NCCL_TOPO_FILE and dumps of NCCL_TOPO_DUMP_FILE.
#include <fmt/format.h>

#include <array>
#include <optional>
#include <utility>

#include "machine/topology_readers.h"
#include "machine/xml_text.h"
#include "moetax/base/text.h"

namespace moetax {
namespace {

constexpr int kMaxNumber = 1 << 20;    // of ranks, devices, links
constexpr double kMostMegabits = 1e7;  // 10 Tb/s: more is a unit mistaken by a thousand
constexpr double kGbsPerMegabit = 1e-3 / 8;

std::optional<int> number(const pugi::xml_node& node, const char* name) {
  const auto value = parse_number<int>(attribute(node, name));
  return value && *value >= 0 && *value <= kMaxNumber ? value : std::nullopt;
}

// GB/s of one XGMI link in one direction by architecture, from AMD's data sheets of MI50, MI100, MI250 and MI300.
double xgmi_gbs(std::string_view gcn) {
  if (gcn.starts_with("gfx")) gcn.remove_prefix(3);
  constexpr std::array<std::pair<std::string_view, double>, 6> kGbs{
      {{"906", 46}, {"908", 46}, {"910", 50}, {"90a", 50}, {"940", 64}, {"942", 64}}};
  for (const auto& [name, gbs] : kGbs) {
    if (gcn == name) return gbs;
  }
  return 0;
}

// The same of NVLink by compute capability, from NVIDIA's data sheets; the A6000 and its kin (86) have narrower ones.
double nvlink_gbs(int sm) {
  if (sm == 86) return 14.06;
  if (sm >= 100) return 50;
  if (sm >= 70) return 25;
  return sm >= 60 ? 20 : 0;
}

class SystemReader {
 public:
  SystemReader(const XmlText& xml, const pugi::xml_node& system) : xml_(xml), system_(system) {}

  // The machine, or nothing when there is neither a GPU nor a NIC in it.
  std::optional<Topology> read() {
    for (const pugi::xml_node cpu : system_.children("cpu")) {
      const int root = tree_.add({-1, PciNodeKind::kHostBridge});
      numa_node_ = number(cpu, "numaid").value_or(-1);
      take_children(cpu, root, 0);
    }
    if (devices_.empty()) return std::nullopt;
    number_devices(devices_);
    Topology machine = place_devices(TopologyFormat::kNcclXml, xml_.line_of(system_), devices_, tree_);
    if (gpu_elements_ == 0) {
      forget_gpu_links(machine);
    } else {
      add_direct_links(machine);
    }
    for (auto& [line, why] : skipped_) machine.skip(line, std::move(why));
    return machine;
  }

 private:
  void take_children(const pugi::xml_node& parent, int node, int depth) {
    if (depth > kMaxXmlDepth) return skip(parent, "is nested too deeply; what is inside is not read");
    for (const pugi::xml_node child : parent.children()) {
      const std::string_view name = child.name();
      if (name == "pci") take_pci(child, node, depth);
      if (name == "gpu") take_gpu(child, parent, node);
      if (name == "nic") {
        // A NIC right below the CPU has no place in the PCI hierarchy.
        for (const pugi::xml_node net : child.children("net")) take_net(net, parent, depth > 0 ? node : -1);
      }
    }
  }

  void take_pci(const pugi::xml_node& pci, int parent, int depth) {
    const std::string_view pci_class = attribute(pci, "class");
    const bool bridge = pci_class.starts_with("0x0604") || pci_class.starts_with("0604");
    const double gbs = pcie_gbs(attribute(pci, "link_speed"), number(pci, "link_width").value_or(0));
    const int node = tree_.add({parent, bridge ? PciNodeKind::kBridge : PciNodeKind::kDevice, gbs});
    const std::size_t before = devices_.size();
    take_children(pci, node, depth + 1);
    if (bridge || devices_.size() > before) return;
    // A file without gpu and nic elements; what the devices are shows in their classes.
    if (is_gpu_class(pci_class, attribute(pci, "vendor"))) {
      add({DeviceKind::kGpu, -1}, pci, node, pci);
    } else if (is_network_class(pci_class)) {
      add({DeviceKind::kNic, -1}, pci, node, pci);
    }
  }

  void take_gpu(const pugi::xml_node& gpu, const pugi::xml_node& pci, int node) {
    ++gpu_elements_;
    add({DeviceKind::kGpu, number(gpu, "dev").value_or(-1)}, pci, node, gpu);
    if (devices_.back().device.vendor.empty() && gpu.attribute("gcn")) devices_.back().device.vendor = "AMD";
  }

  void take_net(const pugi::xml_node& net, const pugi::xml_node& pci, int node) {
    Device nic{DeviceKind::kNic, number(net, "dev").value_or(-1)};
    nic.name = nic.adapter = printable(attribute(net, "name"), kMaxName);
    auto megabits = parse_number<double>(attribute(net, "speed")).value_or(0);
    if (megabits > kMostMegabits && megabits / 1000 <= kMostMegabits) {
      skip(net,
           fmt::format("has a speed of {} Mb/s; taken for kb/s, {:g} Gb/s", attribute(net, "speed"), megabits / 1e6));
      megabits /= 1000;
    }
    if (megabits > 0 && megabits <= kMostMegabits) nic.gbs = megabits * kGbsPerMegabit;
    add(std::move(nic), pci, node, net);
  }

  void add(Device device, const pugi::xml_node& pci, int node, const pugi::xml_node& element) {
    device.bus_id = printable(attribute(pci, "busid"), kMaxName);
    device.numa_node = numa_node_;
    if (device.kind == DeviceKind::kGpu) device.vendor = gpu_vendor(attribute(pci, "vendor"));
    devices_.push_back({std::move(device), node, element});
  }

  // Without gpu elements the file does not say whether there are NVLinks, so PCI is not known to be the way.
  void forget_gpu_links(Topology& machine) {
    for (int a = 0; a < machine.gpus(); ++a) {
      for (int b = a + 1; b < machine.gpus(); ++b) machine.set_link(a, b, {});
    }
    if (machine.gpus() > 1) {
      skipped_.push_back({0,
                          "holds no gpu elements, which NCCL fills in when it runs: whether NVLinks or XGMI join the "
                          "GPUs is not in this file, their links are unknown"});
    }
  }

  void add_direct_links(Topology& machine) {
    std::vector<int> to_switch(static_cast<std::size_t>(machine.gpus()), 0);
    for (int gpu = 0; gpu < machine.gpus(); ++gpu) {
      for (const pugi::xml_node link : devices_[static_cast<std::size_t>(gpu)].element.children()) {
        const std::string_view kind = link.name();
        if (kind != "nvlink" && kind != "xgmi") continue;
        const int lanes = number(link, "count").value_or(1);
        if (kind == "nvlink" && attribute(link, "tclass").starts_with("0x0680")) {
          to_switch[static_cast<std::size_t>(gpu)] += lanes;
        } else {
          add_link_to(machine, gpu, link, direct_link(gpu, kind == "xgmi", lanes));
        }
      }
    }
    for (int a = 0; a < machine.gpus(); ++a) {
      for (int b = a + 1; b < machine.gpus(); ++b) {
        const int lanes = std::min(to_switch[static_cast<std::size_t>(a)], to_switch[static_cast<std::size_t>(b)]);
        if (lanes > 0) machine.set_link(a, b, direct_link(a, false, lanes));
      }
    }
  }

  void add_link_to(Topology& machine, int gpu, const pugi::xml_node& element, const Link& link) {
    const std::string_view target = attribute(element, "target");
    for (int other = 0; other < machine.gpus(); ++other) {
      if (other == gpu || machine.device(other).bus_id != target) continue;
      return machine.set_link(gpu, other, link);
    }
    skip(element, fmt::format("leads to {}, which is no GPU of this file", in_quotes(target)));
  }

  Link direct_link(int gpu, bool xgmi, int lanes) const {
    const pugi::xml_node& element = devices_[static_cast<std::size_t>(gpu)].element;
    const double gbs = xgmi ? xgmi_gbs(attribute(element, "gcn")) : nvlink_gbs(number(element, "sm").value_or(0));
    Link link{xgmi ? LinkKind::kXgmi : LinkKind::kNvlink, lanes, xgmi ? 1 : 0, lanes * gbs};
    if (link.gbs > 0) {
      link.source = xgmi ? "AMD's data sheets by architecture, per link and direction"
                         : "NVIDIA's data sheets by compute capability, per link and direction";
    }
    return link;
  }

  void skip(const pugi::xml_node& node, std::string_view why) {
    if (skipped_.size() > Topology::kMaxSkipped) return;
    skipped_.push_back({xml_.line_of(node), fmt::format("<{}> {}", std::string_view(node.name()).substr(0, 16), why)});
  }

  const XmlText& xml_;
  pugi::xml_node system_;
  PciTree tree_{PciTree::Switches::kOneBridge};
  std::vector<PlacedDevice> devices_;
  std::vector<SkippedLine> skipped_;
  int numa_node_ = -1;
  int gpu_elements_ = 0;
};

}  // namespace

std::vector<Topology> parse_nccl_xml(const XmlText& xml) {
  std::vector<Topology> machines;
  for (const pugi::xml_node system : xml.document.children("system")) {
    if (machines.size() == kMaxXmlMachines) break;
    if (auto machine = SystemReader(xml, system).read()) machines.push_back(std::move(*machine));
  }
  return machines;
}

}  // namespace moetax
