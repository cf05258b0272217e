// Traces of all ranks as one timeline on the first device's clock.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "moetax/report/bill.h"
#include "moetax/trace/chrome_trace.h"

namespace moetax {
namespace {

const char* category(const KernelClass& what) {
  if (what.role == KernelRole::kMemory) return "copy";
  if (what.role == KernelRole::kCompute) return "compute";
  return what.sync_only ? "sync" : "communication";
}

void add_device(const GpuTrace& trace, const DeviceTimes& times, const KernelRules& rules, int process,
                ChromeTrace& out) {
  out.name_process(process, times.rank == kNoRank ? fmt::format("device {}", times.device)
                                                  : fmt::format("rank {}, device {}", times.rank, times.device));
  std::set<std::int64_t> streams;
  const std::int64_t offset = times.clock_offset_ns.value_or(0);
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    const GpuEvent& event = trace.events[i];
    const GpuTrack& track = trace.tracks[event.track];
    if (!on_device(event.kind()) || track.device != times.device) continue;
    KernelClass what;
    what.role = KernelRole::kMemory;
    const std::string_view name = trace.names[event.name];
    if (event.kind() == GpuEventKind::kKernel) what = rules.classify(name);
    const auto stream = static_cast<int>(track.stream & 0x7fffffff);
    if (streams.insert(stream).second) out.name_track(process, stream, fmt::format("stream {}", stream));
    TraceSlice slice{function_name(name),     category(what),          process, stream,
                     event.start_ns + offset, event.end_ns() + offset, {}};
    if (!what.family.empty())
      slice.args = {{"family", what.family}, {"operation", what.operation}, {"phase", what.phase}};
    out.slice(slice);
  }
}

}  // namespace

std::string to_chrome_trace(const std::vector<GpuTrace>& traces, const Analysis& analysis, const KernelRules& rules) {
  std::int64_t origin = INT64_MAX;
  for (const DeviceTimes& times : analysis.devices) {
    origin = std::min(origin, times.begin_ns + times.clock_offset_ns.value_or(0));
  }
  ChromeTrace out(analysis.devices.empty() ? 0 : origin);
  int process = 0;
  for (const DeviceTimes& times : analysis.devices) add_device(traces[times.trace], times, rules, process++, out);
  return std::move(out).finish();
}

}  // namespace moetax
