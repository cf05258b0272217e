#include "transport/local_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "moetax/machine/host.h"
#include "transport/futex.h"

namespace moetax {
namespace {

// A sleep and its wake-up cost about this much, so a longer spin never pays.
constexpr std::int64_t kSpinNs = 50'000;
// With more ranks than cores the rank waited for may need this core: only what is about to arrive is worth a spin.
constexpr std::int64_t kSpinCrowdedNs = 2'000;
std::vector<Rank> first_ranks(int count) {
  std::vector<Rank> ranks(static_cast<std::size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

Result<LocalJob> LocalJob::create(int ranks, int ranks_per_node, std::string_view transport) {
  constexpr int kMaxRanks = 1024;
  if (ranks < 1 || ranks > kMaxRanks) {
    return moetax::fail(ErrorCode::kUsage, fmt::format("cannot start {} ranks: give 1 to {}", ranks, kMaxRanks));
  }
  LocalJob job{nullptr, ranks, ranks_per_node, transport, ranks <= probe_host().cores ? kSpinNs : kSpinCrowdedNs};
  const bool pipes = job.several_nodes(first_ranks(ranks));
  MOETAX_ASSIGN(job.segment, Segment::create(Roster::bytes(ranks) + Group::bytes(ranks, pipes)));
  return job;
}

bool LocalJob::several_nodes(std::span<const Rank> world_ranks) const {
  const auto elsewhere = [&](Rank rank) { return node_of(rank) != node_of(world_ranks.front()); };
  return std::any_of(world_ranks.begin(), world_ranks.end(), elsewhere);
}

LocalCommunicator::LocalCommunicator(const LocalJob& job, Rank rank)
    : LocalCommunicator(job, first_ranks(job.ranks), rank, nullptr, job.world_group()) {}

LocalCommunicator::LocalCommunicator(const LocalJob& job, std::vector<Rank> members, Rank rank,
                                     std::shared_ptr<Mapping> memory, std::byte* group)
    : job_(job),
      roster_(job.roster()),
      members_(std::move(members)),
      rank_(rank),
      memory_(std::move(memory)),
      group_(group, static_cast<int>(members_.size())),
      mailbox_(group_, rank, static_cast<int>(members_.size())) {
  everyone_ = first_ranks(size());
}

Node LocalCommunicator::node_of(Rank rank) const {
  return job_.node_of(world_rank(rank));
}

void LocalCommunicator::fail(const Error& error) {
  roster_.stop(world_rank(rank_), error);
}

void LocalCommunicator::post(Channel channel, Rank to, std::uint64_t value, const Note& note) {
  FlagLine& line = group_.lines_to(to, channel)[rank_];
  line.leave(value, note);
  post_line(line, to, value);
}

void LocalCommunicator::post_line(FlagLine& line, Rank to, std::uint64_t value) const {
  line.posted_ns.store(now_ns(), std::memory_order_relaxed);
  line.value.store(value, std::memory_order_seq_cst);  // a release, and ordered before the load below: see sleep()
  RankState& peer = roster_.state(world_rank(to));
  auto me = static_cast<std::uint32_t>(world_rank(rank_)) + 1;
  if (peer.sleeping_on.load(std::memory_order_seq_cst) != me) return;
  // Taking the request back spares further posts the system call while the peer is on its way.
  if (!peer.sleeping_on.compare_exchange_strong(me, 0)) return;
  peer.doorbell.fetch_add(1);
  futex_wake_all(peer.doorbell);
}

bool LocalCommunicator::arrived(Channel channel, Rank from, std::uint64_t value) const {
  return from == rank_ || group_.lines_to(rank_, channel)[from].is_up(value);
}

Note LocalCommunicator::note(Channel channel, Rank from, std::uint64_t value) const {
  return group_.lines_to(rank_, channel)[from].note(value);
}

}  // namespace moetax
