// Ends the process when a call that cannot be given a deadline does not return.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace moetax::cli {

// From its creation to its destruction the call may take `seconds`. Then `message` goes to standard error (unless it is
// empty) and the process ends with `exit_code`, by _exit().
class Watchdog {
 public:
  Watchdog(double seconds, std::string message, int exit_code);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable returned_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace moetax::cli
