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
// Ranks of one node share memory: each stores into the other's windows and posts a flag.
//
//   MOETAX_ASSIGN(Window rows, comm.make_window("rows", bytes, deadline));
//   std::memcpy(rows.at(peer) + offset, ...);              // a plain store into the peer's memory
//   comm.post(Channel::kRows, peer, number);               // "my rows of exchange `number` are there"
//   MOETAX_ASSIGN(Wait wait, comm.wait(Channel::kRows, peers, number, {"dispatch", number}, deadline));
//
// Ranks of different nodes have flags too, but no windows; their bytes travel as messages.
//
//   const Message out = comm.send(peer, rows);             // `rows` stays untouched until the message is done
//   const Message in = comm.receive(peer, room);           // as many bytes as the peer sends
//   MOETAX_TRY(comm.finish(std::array{out, in}, {"dispatch", number}, deadline));
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
enum class Channel : std::uint8_t { kCall, kRows, kCollective, kNode };
inline constexpr int kNumChannels = 4;

// What travels with a flag: sixteen bytes of the poster's choice, say which call the flag is for.
struct Note {
  std::array<std::uint64_t, 2> word{};
  friend bool operator==(const Note&, const Note&) = default;
};

// A message under way: a number that this rank's communicator gave it, good until the message was found done.
using Message = std::uint32_t;

// What a wait is for; goes into error messages: "rank 3 did not arrive at dispatch #17 within 2 s; ranks 0-2 did".
struct Operation {
  const char* name = "";
  std::uint64_t number = 0;
};

// How a wait went.
struct Wait {
  Rank last = kNoRank;              // the peer whose flag was posted last, by its own time stamp; kNoRank without peers
  std::int64_t last_posted_ns = 0;  // when `last` posted (the newest value, should it have posted again since), by this
                                    // rank's clock
  std::int64_t start_ns = 0;        // idle time is [start_ns, end_ns]; both 0 when every flag was already there
  std::int64_t end_ns = 0;
  std::int64_t off_cpu_ns = 0;  // of the spinning part: off the CPU against this thread's will
};

// A region of memory per rank, addressable from all ranks of its node. Shared ownership of the mapping: views
// stay valid as long as any copy of the Window lives on this rank, also after its communicator is gone. The pages go
// back to the system when no rank holds the window any more.
class Window {
 public:
  Window() = default;
  Window(std::shared_ptr<void> mapping, std::vector<std::byte*> base, std::vector<std::size_t> bytes, Rank self)
      : mapping_(std::move(mapping)), base_(std::move(base)), bytes_(std::move(bytes)), self_(self) {}

  // Null, and of no bytes, for a rank of another node.
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
  // Add to a time of the peer's clock (posted times, ledgers) to get this rank's. Zero on one machine; between machines
  // an estimate made when the world was, good to about half a round trip then, and ageing as the clocks drift.
  virtual std::int64_t clock_offset_ns(Rank peer) const = 0;
  // Whether calls may come from other threads than the one that made the world, as long as it is one at a time.
  virtual bool any_thread() const = 0;
  bool shares_memory(Rank peer) const { return node_of(peer) == node_of(rank()); }

  // Collective. Each rank gives the bytes it wants others to reach (may differ, may be zero); the memory is
  // zero-filled, 2 MiB aligned, reserved as address space and taken when touched, on the NUMA node of the rank it
  // belongs to. `name` (its first 47 bytes) must agree on the ranks of a node, kPeerFailed that shows both otherwise.
  // kUnavailable if the address space cannot be had.
  virtual Result<Window> make_window(std::string_view name, std::size_t bytes, Deadline deadline) = 0;

  // Sets this rank's flag `channel` towards `to` to `value` (values only grow) and leaves the note. Release: stores
  // made before, to any window, are visible to a rank that sees the flag. Never blocks; a system call only if `to`
  // sleeps for this rank or is on another node.
  virtual void post(Channel channel, Rank to, std::uint64_t value, const Note& note = {}) = 0;

  // Whether `from`'s flag towards this rank has reached `value`; this rank itself always has. Acquire. Never blocks.
  virtual bool arrived(Channel channel, Rank from, std::uint64_t value) const = 0;

  // The note of a flag that has arrived. Flags posted one by one (n, n + 1, ...) keep the notes of the last two; with
  // other steps only the newest is good. This rank's own flags, if it posts to itself, count too.
  virtual Note note(Channel channel, Rank from, std::uint64_t value) const = 0;

  // Says what this rank is at from now on, for the messages of those who miss it: its first 24 bytes. wait() and
  // finish() do it too. A few nanoseconds.
  virtual void enter(Operation operation) = 0;

  // Waits until the flags of all ranks in `from` (this rank itself may be among them and counts as arrived) have
  // reached `value`. Spins briefly, then sleeps; a sleeping rank uses no CPU. Flags that are there count even if their
  // rank has ended since, or the deadline has passed.
  virtual Result<Wait> wait(Channel channel, std::span<const Rank> from, std::uint64_t value, Operation operation,
                            Deadline deadline) = 0;

  // Messages between two ranks, also of one node, arrive in the order they were sent, and each must meet a receive of
  // as many bytes. Bytes belong to the transport until the message is done; none is there to a rank itself. Never
  // block, and start the transfer if they can. What was sent moves on in finish(), done() and wait() only.
  // Those still open when the communicator is destroyed are dropped.
  virtual Message send(Rank to, std::span<const std::byte> bytes) = 0;
  virtual Message receive(Rank from, std::span<std::byte> bytes) = 0;

  // Whether a message is done: sent and its bytes free again, or received. After yes its number is used up. Never
  // blocks. kPeerFailed for one of another size than the receive was for.
  virtual Result<bool> done(Message message) = 0;

  // Waits until all of `messages` are done. wait.last is not known.
  virtual Result<Wait> finish(std::span<const Message> messages, Operation operation, Deadline deadline) = 0;
  // Waits until one of them is done and tells which: its index. Not empty.
  virtual Result<std::size_t> finish_one(std::span<const Message> messages, Operation operation, Deadline deadline) = 0;

  // Collective. Ranks of the same color form a new communicator, ordered by their rank here.
  virtual Result<std::unique_ptr<Communicator>> split(int color, Deadline deadline) = 0;

  // Tells the others that this rank stops because of `error`, so that their waits end now and name the culprit (the
  // error's rank if it has one, else this rank). The first call counts.
  virtual void fail(const Error& error) = 0;

  // All ranks 0..size()-1, for waits on everybody.
  std::span<const Rank> everyone() const { return everyone_; }

  // The next value for Channel::kCollective: one sequence for all Collectives objects of this communicator.
  std::uint64_t next_collective() { return ++collectives_; }
  // The same for Channel::kNode, on which only the ranks of a node meet.
  std::uint64_t next_node_meeting() { return ++node_meetings_; }

 protected:
  std::vector<Rank> everyone_;

 private:
  std::uint64_t collectives_ = 0;
  std::uint64_t node_meetings_ = 0;
};

// What the calling thread's rank is at, in a few words, without a final zero: "rank 3 waits at dispatch #17 for ranks 1
// 5", "rank 3, last at combine #16". Returns the number of bytes written, at most `size`. For signal handlers, on the
// thread that waits: nothing is allocated or locked.
std::size_t describe_wait(char* text, std::size_t size);

}  // namespace moetax
