// The messages one rank has under way with the others of its communicator, whatever carries them. Used by one thread.
#pragma once

#include <cstddef>
#include <span>

#include "moetax/transport/communicator.h"

namespace moetax {

// The size of a message that was too large for its receive, where nobody knows how large.
inline constexpr std::size_t kMoreThanExpected = ~std::size_t{0};

class Messages {
 public:
  virtual ~Messages() = default;

  virtual Message send(Rank to, std::span<const std::byte> bytes) = 0;
  virtual Message receive(Rank from, std::span<std::byte> bytes) = 0;

  // Moves what can be moved. Never blocks.
  virtual void progress() = 0;
  virtual bool idle() const = 0;  // nothing is under way

  virtual bool is_done(Message message) const = 0;
  virtual Rank peer_of(Message message) const = 0;
  virtual std::size_t size_of(Message message) const = 0;
  // Uses up a message that is done. The size that came instead of the one the receive was for, or the same size.
  virtual std::size_t take(Message message) = 0;
};

}  // namespace moetax
