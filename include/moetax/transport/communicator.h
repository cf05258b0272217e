// One rank's connection to the others: shared windows, monotone flags, waits that end.
//
// A Communicator belongs to one rank and is used from that rank's own thread. Collective calls (make_window, split) are
// made by all ranks in the same order. Every wait has a deadline; a rank that is dead, late, or stopped with an error
// is named in the Error (ErrorCode::kPeerFailed, Error::rank = the rank at fault). A rank that is killed or fails ends
// the whole job: waits that are not satisfied end on all ranks, also those that wait for somebody else. After an error
// the communicator is only good for fail() and destruction.
//
// Ranks in arguments and results are the communicator's own. Errors (their text, and Error::rank) speak of ranks of the
// world, which are the ones a user started; in a communicator made by split() the two differ, see world_rank().
//
//   MOETAX_ASSIGN(Window rows, comm.make_window("rows", bytes, deadline));
//   std::memcpy(rows.at(peer) + offset, ...);              // a plain store into the peer's memory
//   comm.post(Channel::kRows, peer, number);               // "my rows of exchange `number` are there"
//   MOETAX_ASSIGN(Wait wait, comm.wait(Channel::kRows, peers, number, {"dispatch", number}, deadline));
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "moetax/base/clock.h"
#include "moetax/base/ids.h"
#include "moetax/base/result.h"

namespace moetax {

// Independent sequences of flags between each pair of ranks.
enum class Channel : std::uint8_t { kCounts, kRows, kReady, kDone, kCollective };
inline constexpr int kNumChannels = 5;

// What a wait is for; goes into error messages: "rank 3 did not arrive at dispatch #17 within 2 s; ranks 0-2 did".
struct Operation {
  const char* name = "";
  std::uint64_t number = 0;
};

// How a wait went.
struct Wait {
  Rank last = kNoRank;              // the peer whose flag was posted last, by its own time stamp; kNoRank without peers
  std::int64_t last_posted_ns = 0;  // when `last` posted (the newest value, should it have posted again since)
  std::int64_t start_ns = 0;        // idle time is [start_ns, end_ns]; both 0 when every flag was already there
  std::int64_t end_ns = 0;
  std::int64_t off_cpu_ns = 0;  // of the spinning part: off the CPU against this thread's will
};

// A region of memory per rank that all ranks of the communicator can address. Shared ownership of the mapping: views
// stay valid as long as any copy of the Window lives on this rank, also after its communicator is gone. The pages go
// back to the system when no rank holds the window any more.
class Window {
 public:
  Window() = default;
  Window(std::shared_ptr<void> mapping, std::vector<std::byte*> base, std::vector<std::size_t> bytes, Rank self)
      : mapping_(std::move(mapping)), base_(std::move(base)), bytes_(std::move(bytes)), self_(self) {}

  std::byte* at(Rank rank) const { return base_[static_cast<std::size_t>(rank)]; }
  std::byte* local() const { return at(self_); }
  std::size_t bytes(Rank rank) const { return bytes_[static_cast<std::size_t>(rank)]; }
  std::size_t reserved_bytes() const { return bytes(self_); }

 private:
  std::shared_ptr<void> mapping_;
  std::vector<std::byte*> base_;
  std::vector<std::size_t> bytes_;
  Rank self_ = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual Rank rank() const = 0;
  virtual int size() const = 0;
  virtual Rank world_rank(Rank rank) const { return rank; }  // the same but in communicators made by split()
  virtual Node node_of(Rank rank) const = 0;
  virtual std::string_view transport() const = 0;  // "local-processes", "local-threads"

  // Collective. Each rank gives the bytes it wants others to reach (may differ, may be zero); the memory is
  // zero-filled, 2 MiB aligned, reserved as address space and taken when touched, on the NUMA node of the rank it
  // belongs to. `name` (its first 47 bytes) must agree on all ranks, kPeerFailed that shows both otherwise.
  // kUnavailable if the address space cannot be had.
  virtual Result<Window> make_window(std::string_view name, std::size_t bytes, Deadline deadline) = 0;

  // Sets this rank's flag `channel` towards `to` to `value` (values only grow). Release: stores made before, to any
  // window, are visible to a rank that sees the flag. Never blocks; a system call only if `to` sleeps for this rank.
  virtual void post(Channel channel, Rank to, std::uint64_t value) = 0;

  // Whether `from`'s flag towards this rank has reached `value`; this rank itself always has. Acquire. Never blocks.
  virtual bool arrived(Channel channel, Rank from, std::uint64_t value) const = 0;

  // Waits until the flags of all ranks in `from` (this rank itself may be among them and counts as arrived) have
  // reached `value`. Spins briefly, then sleeps; a sleeping rank uses no CPU. Flags that are there count even if their
  // rank has ended since, or the deadline has passed. The first 24 bytes of operation.name are told to the other ranks.
  virtual Result<Wait> wait(Channel channel, std::span<const Rank> from, std::uint64_t value, Operation operation,
                            Deadline deadline) = 0;

  // Collective. Ranks of the same color form a new communicator, ordered by their rank here.
  virtual Result<std::unique_ptr<Communicator>> split(int color, Deadline deadline) = 0;

  // Tells the others that this rank stops because of `error`, so that their waits end now and name the culprit (the
  // error's rank if it has one, else this rank). The first call counts.
  virtual void fail(const Error& error) = 0;

  // All ranks 0..size()-1, for waits on everybody.
  std::span<const Rank> everyone() const { return everyone_; }

  // The next value for Channel::kCollective: one sequence for all Collectives objects of this communicator.
  std::uint64_t next_collective() { return ++collectives_; }

 protected:
  std::vector<Rank> everyone_;

 private:
  std::uint64_t collectives_ = 0;
};

}  // namespace moetax
