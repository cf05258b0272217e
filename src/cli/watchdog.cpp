#include "cli/watchdog.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <utility>

namespace moetax::cli {

Watchdog::Watchdog(double seconds, std::string message, int exit_code) {
  thread_ = std::thread([this, seconds, message = std::move(message), exit_code] {
    std::unique_lock lock(mutex_);
    if (returned_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return done_; })) return;
    if (!message.empty()) std::fprintf(stderr, "moetax: %s\n", message.c_str());
    std::fflush(nullptr);
    _exit(exit_code);
  });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  returned_.notify_one();
  thread_.join();
}

}  // namespace moetax::cli
