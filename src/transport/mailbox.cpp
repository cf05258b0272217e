#include "transport/mailbox.h"

#include <algorithm>
#include <cstring>

namespace moetax {
namespace {

// Copies between a ring position and plain bytes; `bytes` is at most the ring's size.
void put(Pipe& pipe, std::uint64_t position, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  const std::size_t at = position % Pipe::kBytes, first = std::min(bytes, Pipe::kBytes - at);
  std::memcpy(pipe.data + at, from, first);
  if (first < bytes) std::memcpy(pipe.data, static_cast<const std::byte*>(from) + first, bytes - first);
}

void get(const Pipe& pipe, std::uint64_t position, void* to, std::size_t bytes) {
  if (bytes == 0) return;
  const std::size_t at = position % Pipe::kBytes, first = std::min(bytes, Pipe::kBytes - at);
  std::memcpy(to, pipe.data + at, first);
  if (first < bytes) std::memcpy(static_cast<std::byte*>(to) + first, pipe.data, bytes - first);
}

}  // namespace

Mailbox::Mailbox(const Group& group, Rank self, int size)
    : group_(group), self_(self), out_(static_cast<std::size_t>(size)), in_(static_cast<std::size_t>(size)) {}

Message Mailbox::send(Rank to, std::span<const std::byte> bytes) {
  const Message message =
      open(out_[static_cast<std::size_t>(to)], to, const_cast<std::byte*>(bytes.data()), bytes.size());
  pump_out(to);
  return message;
}

Message Mailbox::receive(Rank from, std::span<std::byte> bytes) {
  return open(in_[static_cast<std::size_t>(from)], from, bytes.data(), bytes.size());
}

Message Mailbox::open(Queue& queue, Rank peer, std::byte* data, std::size_t size) {
  Message message = free_;
  if (message == kNone) {
    message = static_cast<Message>(transfers_.size());
    transfers_.emplace_back();
  } else {
    free_ = transfers_[message].next;
  }
  transfers_[message] = {.peer = peer, .state = State::kOpen, .data = data, .size = size};
  (queue.first == kNone ? queue.first : transfers_[queue.last].next) = message;
  queue.last = message;
  ++open_;
  return message;
}

std::size_t Mailbox::take(Message message) {
  Transfer& transfer = transfers_[message];
  transfer.state = State::kFree;
  transfer.next = free_;
  free_ = message;
  return transfer.came;
}

void Mailbox::close_first(Queue& queue) {
  Transfer& transfer = transfers_[queue.first];
  transfer.state = State::kDone;
  queue.first = transfer.next;
  --open_;
}

void Mailbox::progress() {
  if (idle()) return;
  for (Rank peer = 0; peer < static_cast<Rank>(out_.size()); ++peer) {
    pump_out(peer);
    pump_in(peer);
  }
}

void Mailbox::pump_out(Rank to) {
  Queue& queue = out_[static_cast<std::size_t>(to)];
  if (queue.first == kNone) return;
  Pipe& pipe = group_.pipe(self_, to);
  std::uint64_t written = pipe.written.load(std::memory_order_relaxed);
  while (queue.first != kNone) {
    Transfer& transfer = transfers_[queue.first];
    std::size_t room = Pipe::kBytes - (written - pipe.read.load(std::memory_order_acquire));
    if (!transfer.started) {
      if (room < sizeof transfer.size) break;
      put(pipe, written, &transfer.size, sizeof transfer.size);
      transfer.came = transfer.size;
      transfer.started = true;
      written += sizeof transfer.size;
      room -= sizeof transfer.size;
    }
    const std::size_t now = std::min(room, transfer.size - transfer.moved);
    put(pipe, written, transfer.data + transfer.moved, now);
    written += now;
    transfer.moved += now;
    pipe.written.store(written, std::memory_order_release);
    if (transfer.moved < transfer.size) break;
    close_first(queue);
  }
}

// What a message has too much for its receive is read and dropped.
void Mailbox::pump_in(Rank from) {
  Queue& queue = in_[static_cast<std::size_t>(from)];
  if (queue.first == kNone) return;
  Pipe& pipe = group_.pipe(from, self_);
  std::uint64_t read = pipe.read.load(std::memory_order_relaxed);
  while (queue.first != kNone) {
    Transfer& transfer = transfers_[queue.first];
    std::size_t ready = pipe.written.load(std::memory_order_acquire) - read;
    if (!transfer.started) {
      if (ready < sizeof transfer.came) break;
      get(pipe, read, &transfer.came, sizeof transfer.came);
      transfer.started = true;
      read += sizeof transfer.came;
      ready -= sizeof transfer.came;
    }
    const std::size_t now = std::min(ready, transfer.came - transfer.moved);
    const std::size_t kept = std::min(now, transfer.size - std::min(transfer.size, transfer.moved));
    if (kept > 0) get(pipe, read, transfer.data + transfer.moved, kept);
    read += now;
    transfer.moved += now;
    pipe.read.store(read, std::memory_order_release);
    if (transfer.moved < transfer.came) break;
    close_first(queue);
  }
}

}  // namespace moetax
