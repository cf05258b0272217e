// The shared memory of one communicator: its flags, and the records its ranks leave each other in collective set-up
// calls. Ranks here are the communicator's own. A plain view; the memory belongs to a Mapping.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "moetax/base/ids.h"
#include "moetax/transport/communicator.h"

namespace moetax {

// One flag from one rank to another, alone on its cache line: writers never disturb each other.
struct alignas(64) FlagLine {
  std::atomic<std::uint64_t> value;
  std::atomic<std::int64_t> posted_ns;                 // when, by the poster's clock; stored before `value`
  std::array<std::atomic<std::uint64_t>, 2> notes[2];  // of the last two values, by their parity

  // An acquire; seq_cst for the sake of LocalCommunicator::sleep(), and the same instruction on x86 and Arm.
  bool is_up(std::uint64_t least) const { return value.load(std::memory_order_seq_cst) >= least; }
  void leave(std::uint64_t of, const Note& note) {
    for (std::size_t i = 0; i < note.word.size(); ++i) {
      notes[of % 2][i].store(note.word[i], std::memory_order_relaxed);
    }
  }
  Note note(std::uint64_t of) const {
    Note note;
    for (std::size_t i = 0; i < note.word.size(); ++i) {
      note.word[i] = notes[of % 2][i].load(std::memory_order_relaxed);
    }
    return note;
  }
};
static_assert(sizeof(FlagLine) == 64);

// The bytes of messages from one rank to another, as a ring: positions only grow.
struct Pipe {
  static constexpr std::size_t kBytes = std::size_t{64} << 10;
  alignas(64) std::atomic<std::uint64_t> written;
  alignas(64) std::atomic<std::uint64_t> read;
  alignas(64) std::byte data[kBytes];
};

// What a rank brings to a collective set-up call.
struct Offer {
  enum class Call : std::int32_t { kWindow, kSplit };
  Call call = Call::kWindow;
  std::int32_t color = 0;          // kSplit
  std::uint32_t context = 0;       // kSplit: the first that this rank has not used
  std::uint64_t bytes = 0;         // kWindow
  std::uint64_t offset = 0;        // the second round: where the leader found room; 0 if it did not
  std::array<char, 48> name = {};  // kWindow
  std::array<char, 256> why = {};  // the second round: why there is no room

  void set_name(std::string_view text);
  void set_why(std::string_view text);
  std::string text() const;  // "window \"rows\"", "split"
};

class Group {
 public:
  Group(std::byte* memory, int size) : memory_(memory), size_(static_cast<std::size_t>(size)) {}
  // Pipes are wanted only where ranks of several nodes meet.
  static std::size_t bytes(int size, bool with_pipes) {
    const auto ranks = static_cast<std::size_t>(size);
    return pipes_offset(ranks) + (with_pipes ? ranks * ranks * sizeof(Pipe) : 0);
  }

  Pipe& pipe(Rank from, Rank to) const {
    auto* pipes = reinterpret_cast<Pipe*>(memory_ + pipes_offset(size_));
    return pipes[static_cast<std::size_t>(from) * size_ + static_cast<std::size_t>(to)];
  }

  // The flags towards one rank on one channel, by sender. They lie together: a wait scans them in order.
  FlagLine* lines_to(Rank to, Channel channel) const { return lines_to(to, static_cast<std::size_t>(channel)); }
  FlagLine* setup_lines_to(Rank to) const { return lines_to(to, kNumChannels); }

  // Rounds of set-up calls use two sets of records in turn: a rank can be one round ahead of another, never two.
  Offer& offer(std::uint64_t round, Rank rank) const {
    auto* offers = reinterpret_cast<Offer*>(memory_ + kLines * size_ * size_ * sizeof(FlagLine));
    return offers[(round % 2) * size_ + static_cast<std::size_t>(rank)];
  }

 private:
  static constexpr std::size_t kLines = kNumChannels + 1;  // one more for set-up calls

  static std::size_t pipes_offset(std::size_t ranks) {
    const std::size_t bytes = kLines * ranks * ranks * sizeof(FlagLine) + 2 * ranks * sizeof(Offer);
    return (bytes + alignof(Pipe) - 1) / alignof(Pipe) * alignof(Pipe);
  }

  FlagLine* lines_to(Rank to, std::size_t channel) const {
    return reinterpret_cast<FlagLine*>(memory_) + (static_cast<std::size_t>(to) * kLines + channel) * size_;
  }

  std::byte* memory_;
  std::size_t size_;
};

}  // namespace moetax
