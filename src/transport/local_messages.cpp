// Messages between ranks of different nodes, over pipes in shared memory.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "transport/local_communicator.h"

namespace moetax {
namespace {

class MessagesDone final : public Awaited {
 public:
  // `peers` is room to list their peers in.
  MessagesDone(Mailbox& mailbox, std::span<const Message> messages, std::size_t least, std::vector<Rank>& peers)
      : mailbox_(mailbox), messages_(messages), least_(least), peers_(peers) {
    peers_.clear();
    for (const Message message : messages) peers_.push_back(mailbox.peer_of(message));
  }

  bool complete() override {
    mailbox_.progress();
    std::size_t found = 0;
    for (const Message message : messages_) found += mailbox_.is_done(message);
    return found >= least_;
  }
  std::span<const Rank> peers() const override { return peers_; }
  bool is_here(Rank peer) const override {
    for (std::size_t i = 0; i < messages_.size(); ++i) {
      if (peers_[i] == peer && !mailbox_.is_done(messages_[i])) return false;
    }
    return true;
  }
  Rank ringer() const override { return kNoRank; }

 private:
  Mailbox& mailbox_;
  std::span<const Message> messages_;
  std::size_t least_;
  std::vector<Rank>& peers_;
};

}  // namespace

Result<bool> LocalCommunicator::done(Message message) {
  mailbox_.progress();
  if (!mailbox_.is_done(message)) return false;
  MOETAX_TRY(take(message));
  return true;
}

Result<Wait> LocalCommunicator::finish(std::span<const Message> messages, Operation operation, Deadline deadline) {
  MessagesDone awaited(mailbox_, messages, messages.size(), message_peers_);
  Wait outcome;
  MOETAX_TRY(wait_for(awaited, operation, deadline, outcome));
  for (const Message message : messages) MOETAX_TRY(take(message));
  return outcome;
}

Result<std::size_t> LocalCommunicator::finish_one(std::span<const Message> messages, Operation operation,
                                                  Deadline deadline) {
  MessagesDone awaited(mailbox_, messages, 1, message_peers_);
  Wait outcome;
  MOETAX_TRY(wait_for(awaited, operation, deadline, outcome));
  const auto is_done = [&](Message message) { return mailbox_.is_done(message); };
  const auto found = std::find_if(messages.begin(), messages.end(), is_done);
  MOETAX_TRY(take(*found));
  return static_cast<std::size_t>(found - messages.begin());
}

Result<void> LocalCommunicator::take(Message message) {
  const Rank peer = world_rank(mailbox_.peer_of(message));
  const std::size_t expected = mailbox_.size_of(message), came = mailbox_.take(message);
  if (came == expected) return {};
  return moetax::fail(
      ErrorCode::kPeerFailed,
      fmt::format("rank {} sent {} bytes where rank {} expected {}", peer, came, world_rank(rank_), expected), peer);
}

}  // namespace moetax
