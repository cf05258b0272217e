// Clocks and deadlines. All times are nanoseconds of CLOCK_MONOTONIC, which processes of one machine share.
#pragma once

#include <time.h>

#include <algorithm>
#include <cstdint>
#include <span>

namespace moetax {

inline std::int64_t read_clock_ns(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

inline std::int64_t now_ns() {
  return read_clock_ns(CLOCK_MONOTONIC);
}

// CPU time used by the calling thread. Wall time minus CPU time is time off the CPU: asleep, or descheduled.
inline std::int64_t thread_cpu_ns() {
  return read_clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

// How long a blocking call may take before it returns an error that names the rank it waited for.
class Deadline {
 public:
  static Deadline in_seconds(double seconds) {
    return Deadline(now_ns() + static_cast<std::int64_t>(seconds * 1e9), seconds);
  }
  bool passed() const { return now_ns() >= at_ns_; }
  std::int64_t at_ns() const { return at_ns_; }
  double seconds() const { return seconds_; }  // the length it was made with, for messages

 private:
  Deadline(std::int64_t at_ns, double seconds) : at_ns_(at_ns), seconds_(seconds) {}
  std::int64_t at_ns_;
  double seconds_;
};

// Something that several ranks do together, as one of them saw it.
struct Period {
  std::int64_t start_ns = 0, end_ns = 0;
};

// How long it took once all had begun: from the last start to the last end, of clocks that are aligned. Whatever the
// clocks say, not less than the shortest period and not more than the longest. 0 for none.
inline double span_us(std::span<const Period> periods) {
  if (periods.empty()) return 0;
  std::int64_t start = periods[0].start_ns, end = periods[0].end_ns, shortest = end - start, longest = shortest;
  for (const Period& period : periods) {
    start = std::max(start, period.start_ns);
    end = std::max(end, period.end_ns);
    shortest = std::min(shortest, period.end_ns - period.start_ns);
    longest = std::max(longest, period.end_ns - period.start_ns);
  }
  return static_cast<double>(std::clamp(end - start, shortest, longest)) * 1e-3;
}

// The same of the slowest of several groups, each of `group` of the periods in turn.
inline double slowest_span_us(std::span<const Period> periods, std::size_t group) {
  double slowest = 0;
  for (std::size_t first = 0; first + group <= periods.size(); first += group) {
    slowest = std::max(slowest, span_us(periods.subspan(first, group)));
  }
  return slowest;
}

}  // namespace moetax
