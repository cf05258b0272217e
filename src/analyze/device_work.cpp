#include "analyze/device_work.h"

#include <algorithm>
#include <map>
#include <unordered_map>

namespace moetax {
namespace {

// Classifies each name once.
class Kinds {
 public:
  Kinds(const GpuTrace& trace, const KernelRules& rules) : trace_(trace), rules_(rules) {
    for (const KernelRole role : {KernelRole::kMemory, KernelRole::kCompute}) {
      KernelClass what;
      what.role = role;
      kinds_.push_back(what);
      functions_.emplace_back();
    }
  }
  std::int32_t of(const GpuEvent& event) {
    if (event.kind() != GpuEventKind::kKernel) return 0;
    const auto [at, is_new] = by_name_.try_emplace(event.name, 0);
    if (is_new) at->second = add(trace_.names[event.name]);
    return at->second;
  }
  const std::vector<KernelClass>& kinds() const { return kinds_; }
  const std::vector<std::string>& functions() const { return functions_; }

 private:
  std::int32_t add(std::string_view name) {
    KernelClass what = rules_.classify(name);
    if (what.role == KernelRole::kMemory) return 0;
    if (what.role == KernelRole::kCompute && !what.looks_like_comm) return 1;
    kinds_.push_back(std::move(what));
    functions_.push_back(function_name(name));
    return static_cast<std::int32_t>(kinds_.size()) - 1;
  }

  const GpuTrace& trace_;
  const KernelRules& rules_;
  std::unordered_map<NameTable::Id, std::int32_t> by_name_;
  std::vector<KernelClass> kinds_;
  std::vector<std::string> functions_;
};

void fill_intervals(DeviceWork& work) {
  std::vector<Interval> by_role[3];
  for (const WorkItem& item : work.items) {
    by_role[static_cast<std::size_t>(work.what(item).role)].push_back({item.begin, item.end});
  }
  work.compute = united(std::move(by_role[static_cast<std::size_t>(KernelRole::kCompute)]));
  work.copies = united(std::move(by_role[static_cast<std::size_t>(KernelRole::kMemory)]));
  work.comm = united(std::move(by_role[static_cast<std::size_t>(KernelRole::kCommunication)]));
}

}  // namespace

std::vector<DeviceWork> find_work(const GpuTrace& trace, const KernelRules& rules) {
  std::map<int, DeviceWork> devices;
  Kinds kinds(trace, rules);
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    const GpuEvent& event = trace.events[i];
    if (!on_device(event.kind())) continue;
    devices[trace.tracks[event.track].device].items.push_back({event.start_ns, event.end_ns(), i, kinds.of(event)});
  }
  std::vector<DeviceWork> found;
  for (auto& [device, work] : devices) {
    work.trace = &trace;
    work.device = device;
    work.kinds = kinds.kinds();
    work.functions = kinds.functions();
    std::sort(work.items.begin(), work.items.end(), [](const WorkItem& a, const WorkItem& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.event < b.event;
    });
    fill_intervals(work);
    found.push_back(std::move(work));
  }
  return found;
}

}  // namespace moetax
