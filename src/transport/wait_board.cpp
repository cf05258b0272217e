#include "transport/wait_board.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "transport/local_communicator.h"

namespace moetax {
namespace {

// Text put together without a library: what a signal handler may do.
class Line {
 public:
  Line(char* text, std::size_t size) : text_(text), size_(size) {}
  std::size_t length() const { return length_; }

  Line& operator<<(const char* words) {
    for (; *words != '\0' && length_ < size_; ++words) text_[length_++] = *words;
    return *this;
  }
  Line& operator<<(std::uint64_t number) {
    std::array<char, 24> digits{};
    std::size_t at = digits.size() - 1;
    do {
      digits[--at] = static_cast<char>('0' + number % 10);
      number /= 10;
    } while (number != 0);
    return *this << &digits[at];
  }

 private:
  char* text_;
  std::size_t size_, length_ = 0;
};

}  // namespace

WaitBoard& wait_board() {
  static thread_local WaitBoard board;
  return board;
}

std::size_t describe_wait(char* text, std::size_t size) {
  Line line(text, size);
  const WaitBoard& board = wait_board();
  if (!board.self) {
    line << "no rank yet, or none any more";
    return line.length();
  }
  std::array<char, sizeof board.self->operation_name + 1> name{};
  for (std::size_t i = 0; i < board.self->operation_name.size(); ++i) {
    const std::uint64_t part = board.self->operation_name[i].load(std::memory_order_relaxed);
    std::memcpy(name.data() + i * sizeof part, &part, sizeof part);
  }
  line << "rank " << static_cast<std::uint64_t>(board.world_rank) << (board.awaited ? " waits at " : ", last at ");
  if (name[0] == '\0') {
    line << "nothing";
  } else {
    line << name.data() << " #" << board.self->operation_number.load(std::memory_order_relaxed);
  }
  if (!board.awaited) return line.length();
  const char* before = " for ranks ";
  const std::span<const Rank> peers = board.awaited->peers();
  for (std::size_t i = 0; i < peers.size(); ++i) {
    const auto told = peers.begin() + static_cast<std::ptrdiff_t>(i);
    if (board.awaited->is_here(peers[i]) || std::find(peers.begin(), told, peers[i]) != told) continue;
    line << before << static_cast<std::uint64_t>(board.comm->world_rank(peers[i]));
    before = " ";
  }
  return line.length();
}

}  // namespace moetax
