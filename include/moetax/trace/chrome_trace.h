// A timeline as Chrome trace JSON, which ui.perfetto.dev and chrome://tracing open.
//
// Format: the "Trace Event Format" document; used here are complete events (X), metadata (M) and flows (s, f).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace moetax {

struct TraceArg {
  std::string key;
  std::variant<std::int64_t, std::string> value;
};

// Something that took time on one track. Slices of one track must nest.
struct TraceSlice {
  std::string name;
  std::string category;
  int process = 0;
  int track = 0;
  std::int64_t start_ns = 0;  // on one clock for all processes
  std::int64_t end_ns = 0;    // >= start_ns
  std::vector<TraceArg> args;
};

// A point inside a slice, where an arrow starts or ends.
struct TracePoint {
  int process = 0;
  int track = 0;
  std::int64_t at_ns = 0;
};

// Collects events and writes them with times in us (ns digits kept) from the given origin. Text that is not UTF-8 is
// repaired.
class ChromeTrace {
 public:
  explicit ChromeTrace(std::int64_t origin_ns);
  void name_process(int process, std::string_view name);  // shown in order of process
  void name_track(int process, int track, std::string_view name);
  void slice(const TraceSlice& slice);
  void arrow(std::string_view name, TracePoint from, TracePoint to);
  std::string finish() &&;

 private:
  void open(const char* phase, std::string_view name, int process, int track);
  void metadata(const char* kind, int process, int track, const std::string& args);
  std::int64_t origin_ns_;
  std::int64_t num_arrows_ = 0;
  std::string out_;
};

}  // namespace moetax
