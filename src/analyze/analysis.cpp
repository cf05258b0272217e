#include "moetax/analyze/analysis.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <unordered_map>

#include "analyze/across_ranks.h"
#include "analyze/device_work.h"

namespace moetax {
namespace {

// Bytes of an element, by the names PyTorch uses; 0 for others.
int size_of_dtype(std::string_view dtype) {
  static const std::map<std::string_view, int> kSizes{
      {"Float", 4}, {"Double", 8}, {"Half", 2}, {"BFloat16", 2},      {"Byte", 1},        {"Char", 1},
      {"Short", 2}, {"Int", 4},    {"Long", 8}, {"Float8_e4m3fn", 1}, {"Float8_e5m2", 1}, {"Bool", 1},
  };
  const auto at = kSizes.find(dtype);
  return at == kSizes.end() ? 0 : at->second;
}

std::int64_t noted_bytes(const DeviceWork& work, const WorkItem& item) {
  const std::int32_t at = work.trace->events[item.event].collective;
  if (at < 0) return 0;
  const CollectiveNote& note = work.trace->collectives[static_cast<std::size_t>(at)];
  constexpr std::int64_t kMostElements = std::int64_t{1} << 50;
  if (note.in_elements <= 0 || note.in_elements > kMostElements) return 0;
  return note.in_elements * size_of_dtype(work.trace->names[note.dtype]);
}

// Idle time before work that had not been launched yet: the host was late, not another stream.
std::optional<std::int64_t> idle_for_host(const DeviceWork& work, const Intervals& busy) {
  std::unordered_map<std::uint32_t, Interval> gaps;  // by the correlation of the work after them
  for (std::size_t gap = 0, i = 0; gap + 1 < busy.size(); ++gap) {
    while (i < work.items.size() && work.items[i].begin < busy[gap + 1].begin) ++i;
    if (i == work.items.size()) break;
    const std::uint32_t correlation = work.trace->events[work.items[i].event].correlation;
    if (correlation != 0) gaps[correlation] = {busy[gap].end, busy[gap + 1].begin};
  }
  if (gaps.empty()) return std::nullopt;
  std::int64_t idle = 0;
  for (std::size_t e = 0; e < work.trace->events.size(); ++e) {
    const GpuEvent& event = work.trace->events[e];
    if (event.kind() != GpuEventKind::kRuntime) continue;
    const auto gap = gaps.find(event.correlation);
    if (gap == gaps.end()) continue;
    idle += std::clamp<std::int64_t>(event.end_ns() - gap->second.begin, 0, gap->second.end - gap->second.begin);
    gaps.erase(gap);
  }
  return idle;
}

DeviceTimes times_of(const DeviceWork& work, std::size_t trace) {
  DeviceTimes times;
  times.rank = work.trace->rank;
  times.device = work.device;
  times.trace = trace;
  times.begin_ns = INT64_MAX;
  times.end_ns = INT64_MIN;
  std::vector<Interval> all, sync;
  for (const WorkItem& item : work.items) {
    times.begin_ns = std::min(times.begin_ns, item.begin);
    times.end_ns = std::max(times.end_ns, item.end);
    all.push_back({item.begin, item.end});
    if (work.what(item).sync_only) sync.push_back(all.back());
    if (work.trace->events[item.event].kind() == GpuEventKind::kKernel) ++times.kernels;
  }
  const Intervals busy = united(std::move(all));
  times.compute_ns = total(work.compute);
  times.comm_ns = total(work.comm);
  times.hidden_ns = total(both(work.comm, work.compute));
  times.exposed_ns = times.comm_ns - times.hidden_ns;
  times.sync_ns = total(united(std::move(sync)));
  times.copy_ns = total(busy) - times.compute_ns - times.exposed_ns;
  times.idle_ns = times.end_ns - times.begin_ns - total(busy);
  times.idle_host_ns = idle_for_host(work, busy);
  return times;
}

std::vector<CommTotals> comm_totals(const std::vector<DeviceWork>& works) {
  std::map<std::string, CommTotals> by_operation;
  for (const DeviceWork& work : works) {
    std::map<std::string, std::vector<Interval>> intervals;
    for (const WorkItem& item : work.items) {
      if (!work.communicates(item)) continue;
      const KernelClass& what = work.what(item);
      const std::string key = what.family + "\n" + what.operation;
      CommTotals& totals = by_operation[key];
      totals.what = what;
      ++totals.kernels;
      totals.ns += item.end - item.begin;
      totals.bytes += noted_bytes(work, item);
      intervals[key].push_back({item.begin, item.end});
    }
    for (auto& [key, any] : intervals) {
      by_operation[key].exposed_ns += total(without(united(std::move(any)), work.compute));
    }
  }
  std::vector<CommTotals> totals;
  for (auto& [key, each] : by_operation) totals.push_back(std::move(each));
  std::stable_sort(totals.begin(), totals.end(), [](const CommTotals& a, const CommTotals& b) { return a.ns > b.ns; });
  return totals;
}

std::vector<NameTotal> unknown_names(const std::vector<DeviceWork>& works) {
  std::map<std::string, NameTotal> by_name;
  for (const DeviceWork& work : works) {
    for (const WorkItem& item : work.items) {
      if (!work.what(item).looks_like_comm) continue;
      const std::string& function = work.functions[static_cast<std::size_t>(item.kind)];
      NameTotal& name = by_name[function];
      name.name = function;
      ++name.kernels;
      name.ns += item.end - item.begin;
    }
  }
  std::vector<NameTotal> names;
  for (auto& [function, each] : by_name) names.push_back(std::move(each));
  std::stable_sort(names.begin(), names.end(), [](const NameTotal& a, const NameTotal& b) { return a.ns > b.ns; });
  return names;
}

std::vector<TraceStep> steps_of(const GpuTrace& trace) {
  std::vector<TraceStep> steps;
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    const GpuEvent& event = trace.events[i];
    const std::string_view name = trace.names[event.name];
    if (event.kind() != GpuEventKind::kAnnotation || !name.starts_with("ProfilerStep#")) continue;
    steps.push_back({std::string(name), event.start_ns, event.end_ns()});
  }
  std::sort(steps.begin(), steps.end(), [](const TraceStep& a, const TraceStep& b) { return a.start_ns < b.start_ns; });
  return steps;
}

}  // namespace

Analysis analyze(const std::vector<GpuTrace>& traces, const KernelRules& rules) {
  std::vector<std::size_t> order(traces.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return traces[a].rank < traces[b].rank; });
  Analysis analysis;
  std::vector<DeviceWork> works;
  for (const std::size_t i : order) {
    for (DeviceWork& work : find_work(traces[i], rules)) {
      analysis.devices.push_back(times_of(work, i));
      works.push_back(std::move(work));
    }
  }
  analysis.comm = comm_totals(works);
  analysis.unknown = unknown_names(works);
  if (!works.empty()) analysis.steps = steps_of(*works.front().trace);
  if (works.size() > 1) find_waits(works, analysis);
  return analysis;
}

}  // namespace moetax
