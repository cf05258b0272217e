// What every rank of a job knows of every other: whether it lives, how it ended, what it last entered, and the bell
// that wakes it. Lies in shared memory; always indexed by rank of the world.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "moetax/base/function_ref.h"
#include "moetax/base/ids.h"
#include "moetax/base/result.h"
#include "moetax/transport/communicator.h"
#include "transport/places.h"

namespace moetax {

enum class Ending : std::uint32_t {
  kNone,      // the rank is alive
  kWriting,   // the fields below are being written
  kFinished,  // its body returned, or it left through exit()
  kFailed,    // it called fail()
  kKilled,    // a signal ended its process, or nobody knows what did
};

// How a rank ended, as the others are told.
struct End {
  std::int32_t detail = 0;                // exit status (kFinished) or signal (kKilled), 0 if unknown
  Rank culprit = kNoRank;                 // kFailed: the rank at fault, this one or another
  ErrorCode code = ErrorCode::kInternal;  // kFailed
  std::array<char, 1004> message{};       // kFailed; fills the cache line
};

// Zero-filled memory is a rank that is alive, awake, and has entered nothing.
struct alignas(64) RankState {
  // Touched by the peers that wake this rank.
  std::atomic<std::uint32_t> doorbell;     // counts rings; the word this rank sleeps on
  std::atomic<std::uint32_t> sleeping_on;  // 1 + the rank whose post must ring; 0 while awake

  // Written by this rank at every wait, read for messages only: a reader may see halves of two operations.
  alignas(64) std::atomic<std::uint64_t> operation_number;
  std::array<std::atomic<std::uint64_t>, 3> operation_name;

  // Written once, when this rank ends; readable from kFinished on.
  alignas(64) std::atomic<Ending> ending;
  std::atomic<std::int32_t>
      left;  // 1 + exit status once its body has returned, however it ended; where it is asked for
  End end;
};

struct RosterMemory {
  alignas(64) std::atomic<std::uint32_t> endings;  // how many ranks have ended; one word to watch instead of R states
  std::atomic<std::uint32_t> reported;             // rank 0 has told the user how the job ended
  alignas(64) RankState states[1];                 // as many as there are ranks
};

class Roster {
 public:
  static std::size_t bytes(int ranks) {
    return sizeof(RosterMemory) + sizeof(RankState) * (static_cast<std::size_t>(ranks) - 1);
  }
  // `places` outlives the roster.
  Roster(std::byte* memory, int ranks, const Places& places)
      : memory_(reinterpret_cast<RosterMemory*>(memory)), ranks_(ranks), places_(&places) {}

  RankState& state(Rank rank) const { return memory_->states[rank]; }

  // Says what `rank` waits for from now on. A few nanoseconds.
  void enter(Rank rank, Operation operation) const;

  // How `rank` ended. The first call counts; all sleepers are woken.
  void finish(Rank rank, int exit_status) const;
  void stop(Rank rank, const Error& error) const;
  void kill(Rank rank, int signal) const;                          // only when the process is gone
  void bury(Rank rank, int exit_status) const;                     // the same for a process that left through exit()
  void enter_end(Rank rank, Ending ending, const End& end) const;  // as another node's roster has it

  void leave(Rank rank, int exit_status) const { state(rank).left.store(1 + (exit_status & 0xff)); }
  std::optional<int> left(Rank rank) const {
    const std::int32_t left = state(rank).left.load();
    return left > 0 ? std::optional(left - 1) : std::nullopt;
  }
  void set_reported() const { memory_->reported.store(1); }
  bool reported() const { return memory_->reported.load() != 0; }

  bool has_ended(Rank rank) const { return state(rank).ending.load(std::memory_order_acquire) > Ending::kWriting; }
  // Whether it was killed or failed by itself, so that others end because of it.
  bool is_cause(Rank rank) const {
    const Ending ending = state(rank).ending.load(std::memory_order_acquire);
    return ending == Ending::kKilled || (ending == Ending::kFailed && state(rank).end.culprit == rank);
  }
  // What a rank that called fail() said.
  std::optional<Error> said(Rank rank) const;

  // Grows when a rank ends. Acquire: what the rank posted and how it ended is visible to who sees the new number.
  std::uint32_t endings() const { return memory_->endings.load(std::memory_order_seq_cst); }

  // Why rank `self` waits in vain at `operation`: because a rank it misses is gone, or because any rank was killed or
  // failed, which ends the whole job. Nothing if all may still come. Whether a rank is missing is asked after its end
  // has been seen, so that what it posted before its end counts.
  std::optional<Error> explain(Rank self, FunctionRef<bool(Rank)> is_missing, Operation operation) const;

  // "rank 3 did not arrive at dispatch #17 within 2 s (it was last at combine #16); ranks 0-2 did". Both ascending,
  // neither empty.
  Error late(std::span<const Rank> missing, std::span<const Rank> present, Operation operation, double seconds) const;

 private:
  enum class Urgency;
  Urgency urgency(Rank rank, FunctionRef<bool(Rank)> is_missing) const;
  bool claim(Rank rank, Ending expected) const;
  void publish(Rank rank, Ending ending) const;
  std::string last_seen(Rank rank) const;

  RosterMemory* memory_;
  int ranks_;
  const Places* places_;
};

}  // namespace moetax
