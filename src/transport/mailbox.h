// The messages one rank has under way, over the pipes of its communicator's shared memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "moetax/transport/communicator.h"
#include "transport/group.h"
#include "transport/messages.h"

namespace moetax {

// Used by one thread. Transfers to and from a peer are queued and moved in order, as far as the pipe allows, whenever
// progress() is called. Allocates only when more messages are under way than ever before.
class Mailbox final : public Messages {
 public:
  Mailbox(const Group& group, Rank self, int size);

  Message send(Rank to, std::span<const std::byte> bytes) override;
  Message receive(Rank from, std::span<std::byte> bytes) override;

  void progress() override;
  bool idle() const override { return open_ == 0; }

  bool is_done(Message message) const override { return transfers_[message].state != State::kOpen; }
  Rank peer_of(Message message) const override { return transfers_[message].peer; }
  std::size_t size_of(Message message) const override { return transfers_[message].size; }
  std::size_t take(Message message) override;

 private:
  enum class State : std::uint8_t { kFree, kOpen, kDone };
  static constexpr Message kNone = ~Message{0};
  struct Transfer {
    Rank peer = kNoRank;
    State state = State::kFree;
    bool started = false;  // its size has been written to, or read from, the pipe
    std::byte* data = nullptr;
    std::size_t size = 0;
    std::size_t came = 0;  // the size the sender named
    std::size_t moved = 0;
    Message next = kNone;  // in its queue, or among the free
  };
  struct Queue {
    Message first = kNone, last = kNone;
  };

  Message open(Queue& queue, Rank peer, std::byte* data, std::size_t size);
  void close_first(Queue& queue);
  void pump_out(Rank to);
  void pump_in(Rank from);

  Group group_;
  Rank self_;
  std::vector<Transfer> transfers_;
  std::vector<Queue> out_, in_;  // by peer
  Message free_ = kNone;
  std::size_t open_ = 0;
};

}  // namespace moetax
