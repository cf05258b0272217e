// Small traces for tests.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "moetax/trace/kineto.h"

namespace moetax {

inline std::string kernel_text(const std::string& name, const std::string& ts, const std::string& dur, int stream = 7) {
  return fmt::format(R"({{"ph":"X","cat":"kernel","name":"{}","pid":0,"tid":{},"ts":{},"dur":{},)"
                     R"("args":{{"device":0,"stream":{},"correlation":5}}}})",
                     name, stream, ts, dur, stream);
}

inline std::string trace_text(const std::vector<std::string>& events, const std::string& more = "") {
  return fmt::format("{{\"schemaVersion\":1,\"traceEvents\":[\n{}\n]{}}}", fmt::join(events, ",\n"), more);
}

// What was read, or a trace without events and the error in `file`.
inline GpuTrace parsed(const std::string& text, std::size_t chunk = std::size_t{1} << 20) {
  auto trace = parse_kineto(text, "t.json", {chunk});
  if (trace) return std::move(trace).value();
  GpuTrace none;
  none.file = "ERROR " + trace.error().message;
  return none;
}

inline std::string name_of(const GpuTrace& trace, std::size_t event) {
  return std::string(trace.names[trace.events[event].name]);
}

}  // namespace moetax
