// A Communicator over shared memory, for ranks of one machine: the same for forked processes and for threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "moetax/transport/communicator.h"
#include "transport/group.h"
#include "transport/roster.h"
#include "transport/segment.h"

namespace moetax {

// What the ranks of a job share; made before they start.
struct LocalJob {
  std::shared_ptr<Segment> segment;
  int ranks = 0;
  int ranks_per_node = 0;
  std::string_view transport;
  std::int64_t spin_ns = 0;  // how long a wait spins before it sleeps

  static Result<LocalJob> create(int ranks, int ranks_per_node, std::string_view transport);
  Roster roster() const { return {segment->first(), ranks}; }
  std::byte* world_group() const { return segment->first() + Roster::bytes(ranks); }
};

class LocalCommunicator final : public Communicator {
 public:
  LocalCommunicator(const LocalJob& job, Rank rank);  // of the world

  Rank rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  Rank world_rank(Rank rank) const override { return members_[static_cast<std::size_t>(rank)]; }
  Node node_of(Rank rank) const override;
  std::string_view transport() const override { return job_.transport; }

  Result<Window> make_window(std::string_view name, std::size_t bytes, Deadline deadline) override;
  void post(Channel channel, Rank to, std::uint64_t value) override;
  bool arrived(Channel channel, Rank from, std::uint64_t value) const override;
  Result<Wait> wait(Channel channel, std::span<const Rank> from, std::uint64_t value, Operation operation,
                    Deadline deadline) override;
  Result<std::unique_ptr<Communicator>> split(int color, Deadline deadline) override;
  void fail(const Error& error) override;

 private:
  class Arrivals;
  struct Range {
    std::uint64_t offset = 0;
    std::shared_ptr<Mapping> mapping;
  };

  LocalCommunicator(const LocalJob& job, std::vector<Rank> members, Rank rank, std::shared_ptr<Mapping> memory,
                    std::byte* group);

  void post_line(FlagLine& line, Rank to, std::uint64_t value) const;
  Result<Wait> wait_lines(const FlagLine* lines, std::span<const Rank> from, std::uint64_t value, Operation operation,
                          Deadline deadline) const;

  // From the first look that found a peer missing to the last peer's arrival, or an error.
  Result<void> idle(Arrivals& arrivals, Operation operation, Deadline deadline, Wait& outcome) const;
  bool spin(Arrivals& arrivals, std::uint32_t endings, Deadline deadline, Wait& outcome) const;
  void sleep(const Arrivals& arrivals, std::uint32_t endings, Deadline deadline) const;
  std::optional<Error> late(const Arrivals& arrivals, Operation operation, Deadline deadline) const;

  // Set-up calls (local_setup.cpp): rounds in which every rank leaves an Offer and reads the others'.
  Result<void> meet(const Offer& mine, Deadline deadline);
  Result<void> begin_call(const Offer& mine, Deadline deadline);
  const Offer& offer_of(Rank rank) const { return group_.offer(round_, rank); }
  Result<Range> share_range(Offer mine, Rank leader, std::size_t bytes, Deadline deadline);

  LocalJob job_;
  Roster roster_;
  std::vector<Rank> members_;  // world ranks, by rank here
  Rank rank_;
  std::shared_ptr<Mapping> memory_;  // keeps group_ alive; null for the world, whose memory lives with the segment
  Group group_;
  std::uint64_t round_ = 0;
};

}  // namespace moetax
