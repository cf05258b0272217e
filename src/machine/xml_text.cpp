#include "machine/xml_text.h"

#include <algorithm>
#include <utility>

namespace moetax {

int XmlText::line_at(std::ptrdiff_t offset) const {
  if (offset < 0 || static_cast<std::size_t>(offset) > text.size()) return 0;
  return static_cast<int>(std::count(text.begin(), text.begin() + offset, '\n')) + 1;
}

namespace {

void number_kind(std::vector<PlacedDevice>::iterator begin, std::vector<PlacedDevice>::iterator end,
                 const char* prefix) {
  std::stable_sort(begin, end, [](const auto& a, const auto& b) { return a.device.index < b.device.index; });
  const bool numbered =
      begin == end || (begin->device.index >= 0 && std::adjacent_find(begin, end, [](const auto& a, const auto& b) {
                                                     return a.device.index == b.device.index;
                                                   }) == end);
  if (!numbered) {
    std::stable_sort(begin, end, [](const auto& a, const auto& b) { return a.device.bus_id < b.device.bus_id; });
    for (auto at = begin; at != end; ++at) at->device.index = static_cast<int>(at - begin);
  }
  for (auto at = begin; at != end; ++at) {
    if (at->device.name.empty()) at->device.name = prefix + std::to_string(at->device.index);
  }
}

}  // namespace

void number_devices(std::vector<PlacedDevice>& devices) {
  std::stable_sort(devices.begin(), devices.end(),
                   [](const auto& a, const auto& b) { return a.device.kind < b.device.kind; });
  devices.resize(std::min(devices.size(), static_cast<std::size_t>(Topology::kMaxDevices)));
  const auto nics = std::find_if(devices.begin(), devices.end(),
                                 [](const auto& placed) { return placed.device.kind == DeviceKind::kNic; });
  number_kind(devices.begin(), nics, "GPU");
  number_kind(nics, devices.end(), "NIC");
}

Topology place_devices(TopologyFormat format, int line, const std::vector<PlacedDevice>& devices, const PciTree& tree) {
  std::vector<Device> plain;
  for (const PlacedDevice& placed : devices) plain.push_back(placed.device);
  Topology machine(format, line, std::move(plain));
  for (std::size_t a = 0; a < devices.size(); ++a) {
    for (std::size_t b = a + 1; b < devices.size(); ++b) {
      if (devices[a].node < 0 || devices[b].node < 0) continue;
      machine.set_link(static_cast<int>(a), static_cast<int>(b), tree.between(devices[a].node, devices[b].node));
    }
  }
  return machine;
}

}  // namespace moetax
