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
  std::atomic<std::int64_t> posted_ns;  // when, by the poster's clock; stored before `value`
};

// What a rank brings to a collective set-up call.
struct Offer {
  enum class Call : std::int32_t { kWindow, kSplit };
  Call call = Call::kWindow;
  std::int32_t color = 0;          // kSplit
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
  static std::size_t bytes(int size) {
    const auto ranks = static_cast<std::size_t>(size);
    return kLines * ranks * ranks * sizeof(FlagLine) + 2 * ranks * sizeof(Offer);
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

  FlagLine* lines_to(Rank to, std::size_t channel) const {
    return reinterpret_cast<FlagLine*>(memory_) + (static_cast<std::size_t>(to) * kLines + channel) * size_;
  }

  std::byte* memory_;
  std::size_t size_;
};

}  // namespace moetax
