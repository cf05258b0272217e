// Collectives matched across devices, their clocks aligned, and the waits that follow.
#pragma once

#include <cstdint>
#include <vector>

#include "analyze/device_work.h"

namespace moetax {

struct Member {
  std::size_t device = 0, item = 0;  // indices of the works and of their items
};
// One collective: its kernel on each device that took part, by device.
struct Matched {
  std::vector<Member> members;
  int group_size = -1;  // as noted
};

// By group, operation and sequence number where the kernels note them, else by order within (group, operation); without
// notes by order of the function over all devices, where all ran it equally often. `unmatched` counts the others.
std::vector<Matched> match_collectives(const std::vector<DeviceWork>& works, std::int64_t& unmatched);

// What to add to each device's clock for the first one's: ends of a collective coincide. Devices that share no
// collective with the others keep 0.
std::vector<std::int64_t> align_clocks(const std::vector<DeviceWork>& works, const std::vector<Matched>& matched);

// Fills the waits, the alignment and what of CommTotals needs several devices.
void find_waits(const std::vector<DeviceWork>& works, Analysis& analysis);

}  // namespace moetax
