// Clocks and deadlines. All times are nanoseconds of CLOCK_MONOTONIC, which processes of one machine share.
#pragma once

#include <time.h>

#include <cstdint>

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

}  // namespace moetax
