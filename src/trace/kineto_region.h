// A stretch of a Kineto trace's list of events.
#pragma once

#include <simdjson.h>

#include <cstddef>
#include <string>

#include "moetax/trace/gpu_trace.h"
#include "trace/kineto_event.h"

namespace moetax {

// Where an event may end: the first brace that closes one and is followed by the next event or by the list's end. Found
// by the text alone, so strings and nested lists can look the same; what is read there tells. Null where there is none.
const char* next_boundary(const char* from, const char* end);
// The last one followed by another event.
const char* last_boundary(const char* begin, const char* end);

struct RegionEnd {
  const char* at;           // what lies before is done with
  bool list_ended = false;  // its bracket was the last thing used
};

class KinetoRegions {
 public:
  explicit KinetoRegions(GpuTrace& trace) : trace_(trace), events_(trace) {}
  // Takes the events of [begin, end), of which the first begins at `begin`. The byte before begin and the padding of
  // simdjson behind end are this function's to write on; the bytes at end are put back. If it is the file's `last`
  // region, an unfinished event is damaged, otherwise it is left. `offset` is begin's place in the file.
  RegionEnd take(char* begin, char* end, bool last, std::int64_t offset);
  bool saw_phase() const { return events_.saw_phase(); }

 private:
  // All of it at once. Stops at the first trouble: where that is, and true.
  bool take_sound(char* begin, char* end, RegionEnd& reached);
  // Event by event, each on its own, over the damaged ones.
  RegionEnd take_damaged(const char* begin, const char* end, bool last, std::int64_t offset);
  bool take_one(const char* begin, const char* end);
  bool take_copy();
  void count_damage(std::int64_t offset);

  GpuTrace& trace_;
  KinetoEvents events_;
  simdjson::ondemand::parser parser_;
  std::string copy_;  // of one event, with padding
};

}  // namespace moetax
