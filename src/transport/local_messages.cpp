// Messages between ranks, and waiting for them.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "transport/local_communicator.h"

namespace moetax {
namespace {

class MessagesDone final : public Awaited {
 public:
  // `peers` is room to list their peers in.
  MessagesDone(Messages& all, std::span<const Message> messages, std::size_t least, std::vector<Rank>& peers)
      : all_(all), messages_(messages), least_(least), peers_(peers) {
    peers_.clear();
    for (const Message message : messages) peers_.push_back(all.peer_of(message));
  }

  bool complete() override {
    all_.progress();
    std::size_t found = 0;
    for (const Message message : messages_) found += all_.is_done(message);
    return found >= least_;
  }
  std::span<const Rank> peers() const override { return peers_; }
  bool is_here(Rank peer) const override {
    for (std::size_t i = 0; i < messages_.size(); ++i) {
      if (peers_[i] == peer && !all_.is_done(messages_[i])) return false;
    }
    return true;
  }
  Rank ringer() const override { return kNoRank; }

 private:
  Messages& all_;
  std::span<const Message> messages_;
  std::size_t least_;
  std::vector<Rank>& peers_;
};

}  // namespace

Result<bool> LocalCommunicator::done(Message message) {
  progress();
  if (!messages_->is_done(message)) return false;
  MOETAX_TRY(take(message));
  return true;
}

Result<Wait> LocalCommunicator::finish(std::span<const Message> messages, Operation operation, Deadline deadline) {
  MessagesDone awaited(*messages_, messages, messages.size(), message_peers_);
  Wait outcome;
  MOETAX_TRY(wait_for(awaited, operation, deadline, outcome));
  for (const Message message : messages) MOETAX_TRY(take(message));
  return outcome;
}

Result<std::size_t> LocalCommunicator::finish_one(std::span<const Message> messages, Operation operation,
                                                  Deadline deadline) {
  MessagesDone awaited(*messages_, messages, 1, message_peers_);
  Wait outcome;
  MOETAX_TRY(wait_for(awaited, operation, deadline, outcome));
  const auto is_done = [&](Message message) { return messages_->is_done(message); };
  const auto found = std::find_if(messages.begin(), messages.end(), is_done);
  MOETAX_TRY(take(*found));
  return static_cast<std::size_t>(found - messages.begin());
}

Result<void> LocalCommunicator::take(Message message) {
  const Rank peer = world_rank(messages_->peer_of(message));
  const std::size_t expected = messages_->size_of(message), came = messages_->take(message);
  if (came == expected) return {};
  const std::string sent = came == kMoreThanExpected ? "more bytes" : fmt::format("{} bytes", came);
  return moetax::fail(ErrorCode::kPeerFailed,
                      fmt::format("{} sent {} where {} expected {}", job_.places->text(peer), sent,
                                  job_.places->text(world_rank(rank_)), expected),
                      peer);
}

}  // namespace moetax
