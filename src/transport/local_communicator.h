// A Communicator over shared memory: the same for forked processes, for threads, and for processes that met on a node.
// Ranks that share no memory with this one are reached through a FarLink, if the job has one: their flags and offers
// come into this rank's own lines, where waits find them, so the code that waits is one for all.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "moetax/transport/communicator.h"
#include "transport/far_link.h"
#include "transport/group.h"
#include "transport/messages.h"
#include "transport/places.h"
#include "transport/roster.h"
#include "transport/segment.h"

namespace moetax {

// What the ranks of a job share; made before they start.
struct LocalJob {
  std::shared_ptr<Segment> segment;  // of this node
  int ranks = 0;                     // in the whole world
  std::shared_ptr<const Places> places;
  std::string_view transport;
  std::int64_t spin_ns = 0;                 // how long a wait spins before it sleeps
  std::shared_ptr<FarLink> link = nullptr;  // null: all ranks have this segment, whatever node they are said to be on

  static Result<LocalJob> create(int ranks, int ranks_per_node, std::string_view transport);
  static std::size_t first_bytes(int ranks, bool with_pipes) {
    return Roster::bytes(ranks) + Group::bytes(ranks, with_pipes);
  }
  static std::int64_t spin_for(int ranks_here, int cores);

  bool same_memory(Rank world_a, Rank world_b) const {
    return !link || places->node_of(world_a) == places->node_of(world_b);
  }
  Roster roster() const { return {segment->first(), ranks, *places}; }
  std::byte* world_group() const { return segment->first() + Roster::bytes(ranks); }
};

// What a wait is for.
class Awaited {
 public:
  virtual ~Awaited() = default;
  virtual bool complete() = 0;
  virtual std::span<const Rank> peers() const = 0;  // in the order they are looked at
  virtual bool is_here(Rank peer) const = 0;
  // While not complete: the peer that rings this rank's doorbell when it comes, or kNoRank if looking again is the only
  // way to find out.
  virtual Rank ringer() const = 0;
};

class LocalCommunicator final : public Communicator, private FarListener {
 public:
  LocalCommunicator(const LocalJob& job, Rank rank);  // of the world
  ~LocalCommunicator() override;
  LocalCommunicator(const LocalCommunicator&) = delete;
  LocalCommunicator& operator=(const LocalCommunicator&) = delete;

  Rank rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  Rank world_rank(Rank rank) const override { return members_[static_cast<std::size_t>(rank)]; }
  Node node_of(Rank rank) const override;
  std::string_view transport() const override { return job_.transport; }
  bool any_thread() const override { return !job_.link || job_.link->any_thread(); }
  std::int64_t clock_offset_ns(Rank peer) const override;

  Result<Window> make_window(std::string_view name, std::size_t bytes, Deadline deadline) override;
  void post(Channel channel, Rank to, std::uint64_t value, const Note& note) override;
  bool arrived(Channel channel, Rank from, std::uint64_t value) const override;
  Note note(Channel channel, Rank from, std::uint64_t value) const override;
  void enter(Operation operation) override { roster_.enter(world_rank(rank_), operation); }
  Result<Wait> wait(Channel channel, std::span<const Rank> from, std::uint64_t value, Operation operation,
                    Deadline deadline) override;
  Message send(Rank to, std::span<const std::byte> bytes) override { return messages_->send(to, bytes); }
  Message receive(Rank from, std::span<std::byte> bytes) override { return messages_->receive(from, bytes); }
  Result<bool> done(Message message) override;
  Result<Wait> finish(std::span<const Message> messages, Operation operation, Deadline deadline) override;
  Result<std::size_t> finish_one(std::span<const Message> messages, Operation operation, Deadline deadline) override;
  Result<std::unique_ptr<Communicator>> split(int color, Deadline deadline) override;
  void fail(const Error& error) override;

 private:
  struct Range {
    std::uint64_t offset = 0;
    std::shared_ptr<Mapping> mapping;
  };

  LocalCommunicator(const LocalJob& job, std::uint32_t context, std::vector<Rank> members, Rank rank,
                    std::shared_ptr<Mapping> memory, std::byte* group);

  bool is_world() const { return memory_ == nullptr; }
  void take_flag(Rank world_from, const FarFlag& flag, std::int64_t posted_ns) override;
  void take_offer(Rank world_from, std::uint64_t round, const Offer& offer, std::int64_t posted_ns) override;
  bool is_far(Rank peer) const { return !job_.same_memory(world_rank(rank_), world_rank(peer)); }
  Rank rank_of(Rank world_rank) const;
  void progress();
  std::uint32_t endings() const { return roster_.endings() + (job_.link ? job_.link->num_heard_out() : 0); }
  bool heard_out(Rank peer) const { return !is_far(peer) || job_.link->heard_out(world_rank(peer)); }

  void post_line(FlagLine& line, Rank to, std::uint64_t value) const;

  // Waiting, in local_wait.cpp: until `awaited` is complete, a rank ends, or the deadline passes. Times are added to
  // `outcome`.
  Result<Wait> wait_lines(const FlagLine* lines, std::span<const Rank> from, std::uint64_t value, Operation operation,
                          Deadline deadline);
  Result<void> wait_for(Awaited& awaited, Operation operation, Deadline deadline, Wait& outcome);
  Result<void> idle(Awaited& awaited, Operation operation, Deadline deadline, Wait& outcome);
  bool spin(Awaited& awaited, std::uint32_t endings, Deadline deadline, Wait& outcome);
  void sleep(Awaited& awaited, std::uint32_t endings, Deadline deadline, const Wait& outcome);
  std::int64_t nap_until_ns(bool must_look, const Wait& outcome) const;
  std::optional<Error> late(const Awaited& awaited, Operation operation, Deadline deadline) const;

  Result<void> take(Message message);

  // Set-up calls (local_setup.cpp): rounds in which every rank leaves an Offer and reads the others'.
  Result<void> meet(const Offer& mine, Deadline deadline);
  Result<void> begin_call(const Offer& mine, Deadline deadline);
  const Offer& offer_of(Rank rank) const;
  Rank leader_for(std::span<const Rank> group, Rank rank) const;
  Result<Range> share_range(Offer mine, std::span<const Rank> group, std::size_t bytes, Deadline deadline);

  LocalJob job_;
  std::uint32_t context_;
  Roster roster_;
  std::vector<Rank> members_;  // world ranks, by rank here
  Rank rank_;
  std::shared_ptr<Mapping> memory_;  // keeps group_ alive; null for the world, whose memory lives with the segment
  Group group_;
  std::unique_ptr<Messages> messages_;
  std::vector<Rank> message_peers_;  // of the wait under way
  std::uint64_t round_ = 0;
  std::vector<Offer> far_offers_;  // [2][R], as Group::offer
};

// The life of one rank, on whatever it runs: body(comm), and the others learn how it ended. Returns what `body` did.
int live(const LocalJob& job, Rank rank, const std::function<int(Communicator&)>& body);

}  // namespace moetax
