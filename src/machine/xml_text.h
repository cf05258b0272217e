// What the XML readers share: a document that may be cut off, its attributes, and the machine made of what was found.
#pragma once

#include <pugixml.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "machine/pci_tree.h"
#include "machine/words.h"
#include "moetax/machine/topology.h"

namespace moetax {

inline constexpr int kMaxXmlDepth = 64;
inline constexpr std::size_t kMaxXmlMachines = 16;
inline constexpr std::size_t kMaxName = 64;  // characters of a device's

struct XmlText {
  explicit XmlText(std::string_view all) : parsed(document.load_buffer(all.data(), all.size())), text(all) {}
  int line_of(const pugi::xml_node& node) const { return line_at(node.offset_debug()); }
  int line_at(std::ptrdiff_t offset) const;  // counted from 1; 0 when the offset is not known

  pugi::xml_document document;
  pugi::xml_parse_result parsed;  // where it failed `document` holds what came before
  std::string_view text;
};

inline std::string_view attribute(const pugi::xml_node& node, const char* name) {
  return node.attribute(name).value();
}

// A device found in the file and its place in the PCI hierarchy; -1 when it has none.
struct PlacedDevice {
  Device device;
  int node = -1;
  pugi::xml_node element = {};
};

// GPUs before NICs, each sorted by number where all have one of their own (index >= 0), else by PCI address and
// numbered in that order. At most Topology::kMaxDevices are kept.
void number_devices(std::vector<PlacedDevice>& devices);
// A topology of `devices`, links between them by their places.
Topology place_devices(TopologyFormat format, int line, const std::vector<PlacedDevice>& devices, const PciTree& tree);

}  // namespace moetax
