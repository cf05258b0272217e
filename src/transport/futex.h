// Sleeping on a word in shared memory. Never FUTEX_PRIVATE: the other side may be another process.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

namespace moetax {

static_assert(sizeof(std::atomic<std::uint32_t>) == 4 && std::atomic<std::uint32_t>::is_always_lock_free);

// Sleeps while `word` is `seen`, at most until `until_ns` of CLOCK_MONOTONIC. May return early for no reason.
inline void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t seen, std::int64_t until_ns) {
  const timespec until{static_cast<time_t>(until_ns / 1'000'000'000), static_cast<long>(until_ns % 1'000'000'000)};
  // The _BITSET form takes an absolute time, so that early returns do not prolong the wait.
  syscall(SYS_futex, &word, FUTEX_WAIT_BITSET, seen, &until, nullptr, FUTEX_BITSET_MATCH_ANY);
}

inline void futex_wake_all(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace moetax
