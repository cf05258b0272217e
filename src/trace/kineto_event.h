// One event of a Kineto trace.
#pragma once

#include <simdjson.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "moetax/trace/gpu_trace.h"

namespace moetax {

// Takes events, in JSON's order of keys or any other, and keeps those that are of use in `trace`.
class KinetoEvents {
 public:
  explicit KinetoEvents(GpuTrace& trace);
  // Nothing of the event is kept when an error comes back. Strings are taken as they stand between their quotes.
  simdjson::error_code take(simdjson::ondemand::object event);
  // Whether anything looked like an event of this format.
  bool saw_phase() const { return saw_phase_; }

 private:
  // The parts of an event, as the JSON has them: strings with their quotes. Views of the JSON.
  struct Parts {
    std::string_view phase, category, name, pid, tid, ts, dur;
    std::string_view device, stream, correlation;
    int kind = -2;  // as kind_of() says; -2: not asked yet
    bool has_note = false;
    CollectiveNote note;
  };
  struct Place {
    std::string_view first, second;  // pid and tid, or device and stream
    bool device = false;
  };

  struct KnownCategory {
    std::string text;
    int kind = 0;
  };

  bool wants_args(Parts& parts);
  simdjson::error_code take_args(simdjson::ondemand::object args, Parts& parts);
  static std::string_view* part_of(const char* key, Parts& parts);
  void take_note(const char* key, std::string_view token, Parts& parts);
  bool keep(const Parts& parts);
  std::uint32_t track_of(const Parts& parts, GpuEventKind kind);
  std::uint32_t find_track(const Place& place, const Parts& parts);
  NameTable::Id name_of(std::string_view token);
  int kind_of(std::string_view category);  // a GpuEventKind, or kOther

  GpuTrace& trace_;
  std::array<KnownCategory, 64> known_;  // those met last, by a few of their bytes
  std::unordered_map<std::string, std::uint32_t> tracks_;
  struct LastTrack {
    std::string first = "none yet", second;
    std::uint32_t track = 0;
  };
  std::array<LastTrack, 2> last_;  // of host and device
  bool saw_phase_ = false;
};

}  // namespace moetax
