// The work of one device, in the order of its start.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analyze/intervals.h"
#include "moetax/analyze/analysis.h"

namespace moetax {

struct WorkItem {
  std::int64_t begin = 0, end = 0;
  std::size_t event = 0;  // of the trace
  std::int32_t kind = 0;  // an index of DeviceWork::kinds
};

struct DeviceWork {
  const GpuTrace* trace = nullptr;
  int device = 0;
  std::vector<WorkItem> items;
  std::vector<KernelClass> kinds;      // the distinct ones of its kernels
  std::vector<std::string> functions;  // by kind: the function's name where it communicates
  Intervals compute, comm, copies;

  const KernelClass& what(const WorkItem& item) const { return kinds[static_cast<std::size_t>(item.kind)]; }
  bool communicates(const WorkItem& item) const { return what(item).role == KernelRole::kCommunication; }
  std::string_view name(const WorkItem& item) const { return trace->names[trace->events[item.event].name]; }
};

// One per device with work, by number.
std::vector<DeviceWork> find_work(const GpuTrace& trace, const KernelRules& rules);

}  // namespace moetax
