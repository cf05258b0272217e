// One rank's connection to the others: shared windows, monotone flags, waits that end.
//
// A Communicator belongs to one rank and is used from that rank's own thread. Collective calls (make_window, split) are
// made by all ranks in the same order. Every wait has a deadline; a rank that is dead, late, or stopped with an error
// is named in the Error (ErrorCode::kPeerFailed, Error::rank = the rank at fault). After an error the communicator is
// only good for fail() and destruction.
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

// How a wait went. All zero when every flag was already there.
struct Wait {
  Rank last = kNoRank;        // the peer whose flag was posted last, by its own time stamp
  std::int64_t start_ns = 0;  // idle time is [start_ns, end_ns]; equal when nothing had to be waited for
  std::int64_t end_ns = 0;
  std::int64_t last_posted_ns = 0;  // when `last` posted; before start_ns when it was early
  std::int64_t off_cpu_ns = 0;      // of the spinning part: off the CPU against this thread's will
};

// A region of memory per rank that all ranks of the communicator can address. Shared ownership of the mapping: views
// stay valid as long as any copy of the Window lives.
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
  virtual Node node_of(Rank rank) const = 0;
  virtual std::string_view transport() const = 0;  // "local-processes", "local-threads"

  // Collective. Each rank gives the bytes it wants others to reach (may differ, may be zero); the memory is
  // zero-filled, page aligned, reserved as address space and taken when touched. `name` must agree on all ranks
  // (kPeerFailed that shows both otherwise).
  virtual Result<Window> make_window(std::string_view name, std::size_t bytes, Deadline deadline) = 0;

  // Sets this rank's flag `channel` towards `to` to `value` (values only grow). Release: stores made before, to any
  // window, are visible to a rank that sees the flag. Never blocks.
  virtual void post(Channel channel, Rank to, std::uint64_t value) = 0;

  // Whether `from`'s flag towards this rank has reached `value`. Acquire. Never blocks.
  virtual bool arrived(Channel channel, Rank from, std::uint64_t value) const = 0;

  // Waits until the flags of all ranks in `from` (this rank itself may be among them and counts as arrived) have
  // reached `value`. Spins briefly, then sleeps; a sleeping rank uses no CPU.
  virtual Result<Wait> wait(Channel channel, std::span<const Rank> from, std::uint64_t value, Operation operation,
                            Deadline deadline) = 0;

  // Collective. Ranks of the same color form a new communicator, ordered by their rank here.
  virtual Result<std::unique_ptr<Communicator>> split(int color, Deadline deadline) = 0;

  // Tells the others that this rank stops because of `error`, so that their waits end now and name the culprit (the
  // error's rank if it has one, else this rank). Idempotent.
  virtual void fail(const Error& error) = 0;

  // All ranks 0..size()-1, for waits on everybody.
  std::span<const Rank> everyone() const { return everyone_; }

 protected:
  std::vector<Rank> everyone_;
};

}  // namespace moetax
