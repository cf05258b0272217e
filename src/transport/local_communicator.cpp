#include "transport/local_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <numeric>
#include <utility>

#include "moetax/machine/host.h"
#include "moetax/transport/local.h"
#include "transport/futex.h"
#include "transport/mailbox.h"
#include "transport/wait_board.h"

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

std::unique_ptr<Messages> make_messages(const LocalJob& job, std::uint32_t context, const Group& group,
                                        std::span<const Rank> members, Rank rank) {
  if (job.link) return job.link->messages(context, members);
  return std::make_unique<Mailbox>(group, rank, static_cast<int>(members.size()));
}

}  // namespace

std::int64_t LocalJob::spin_for(int ranks_here, int cores) {
  return ranks_here <= cores ? kSpinNs : kSpinCrowdedNs;
}

Result<LocalJob> LocalJob::create(int ranks, int ranks_per_node, std::string_view transport) {
  constexpr int kMaxRanks = 1024;
  if (ranks < 1 || ranks > kMaxRanks) {
    return moetax::fail(ErrorCode::kUsage, fmt::format("cannot start {} ranks: give 1 to {}", ranks, kMaxRanks));
  }
  const auto places = std::make_shared<const Places>(Places::in_blocks(ranks, ranks_per_node));
  LocalJob job{nullptr, ranks, places, transport, spin_for(ranks, probe_host().cores)};
  MOETAX_ASSIGN(job.segment, Segment::create(first_bytes(ranks, places->several_nodes())));
  return job;
}

LocalCommunicator::LocalCommunicator(const LocalJob& job, Rank rank)
    : LocalCommunicator(job, 0, first_ranks(job.ranks), rank, nullptr, job.world_group()) {}

LocalCommunicator::LocalCommunicator(const LocalJob& job, std::uint32_t context, std::vector<Rank> members, Rank rank,
                                     std::shared_ptr<Mapping> memory, std::byte* group)
    : job_(job),
      context_(context),
      roster_(job_.roster()),
      members_(std::move(members)),
      rank_(rank),
      memory_(std::move(memory)),
      group_(group, static_cast<int>(members_.size())),
      messages_(make_messages(job_, context, group_, members_, rank)) {
  everyone_ = first_ranks(size());
  if (is_world()) wait_board() = {.self = &roster_.state(rank), .world_rank = rank};
  if (!job_.link) return;
  far_offers_.resize(2 * members_.size());
  job_.link->open(context_, *this);
}

LocalCommunicator::~LocalCommunicator() {
  if (is_world() && wait_board().self == &roster_.state(rank_)) wait_board() = {};
  if (job_.link) job_.link->close(context_);
}

Node LocalCommunicator::node_of(Rank rank) const {
  return job_.places->node_of(world_rank(rank));
}

std::int64_t LocalCommunicator::clock_offset_ns(Rank peer) const {
  return job_.link ? job_.link->clock_offset_ns(world_rank(peer)) : 0;
}

void LocalCommunicator::progress() {
  messages_->progress();
  if (job_.link) job_.link->progress();
}

void LocalCommunicator::fail(const Error& error) {
  const Rank self = world_rank(rank_);
  if (roster_.has_ended(self)) return;
  roster_.stop(self, error);
  if (job_.link) job_.link->tell_end(self);
}

void LocalCommunicator::post(Channel channel, Rank to, std::uint64_t value, const Note& note) {
  if (is_far(to)) {
    return job_.link->post(world_rank(to), {context_, static_cast<std::uint32_t>(channel), value, note});
  }
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
  const FlagLine& line = group_.lines_to(rank_, channel)[from];
  if (from == rank_ || line.is_up(value)) return true;
  if (!is_far(from)) return false;
  job_.link->progress();
  return line.is_up(value);
}

Note LocalCommunicator::note(Channel channel, Rank from, std::uint64_t value) const {
  return group_.lines_to(rank_, channel)[from].note(value);
}

// ---- What comes from other nodes ----------------------------------------------------------------------------------

Rank LocalCommunicator::rank_of(Rank world_rank) const {
  const auto found = std::lower_bound(members_.begin(), members_.end(), world_rank);
  return static_cast<Rank>(found - members_.begin());
}

void LocalCommunicator::take_flag(Rank world_from, const FarFlag& flag, std::int64_t posted_ns) {
  const Rank from = rank_of(world_from);
  FlagLine& line = flag.line == kNumChannels ? group_.setup_lines_to(rank_)[from]
                                             : group_.lines_to(rank_, static_cast<Channel>(flag.line))[from];
  line.leave(flag.value, flag.note);
  line.posted_ns.store(posted_ns, std::memory_order_relaxed);
  line.value.store(flag.value, std::memory_order_release);
}

void LocalCommunicator::take_offer(Rank world_from, std::uint64_t round, const Offer& offer, std::int64_t posted_ns) {
  far_offers_[(round % 2) * members_.size() + static_cast<std::size_t>(rank_of(world_from))] = offer;
  take_flag(world_from, {context_, kNumChannels, round, {}}, posted_ns);
}

// ---- Its life -----------------------------------------------------------------------------------------------------

int live(const LocalJob& job, Rank rank, const std::function<int(Communicator&)>& body) {
  LocalCommunicator comm(job, rank);
  int status = kBodyThrew;
  try {
    status = body(comm);
  } catch (const std::exception& exception) {
    comm.fail({ErrorCode::kInternal, fmt::format("an exception left the rank's body: {}", exception.what())});
  } catch (...) {
    comm.fail({ErrorCode::kInternal, "an exception left the rank's body"});
  }
  const Roster roster = job.roster();
  if (roster.has_ended(rank)) return status;
  roster.finish(rank, status);
  if (job.link) job.link->tell_end(rank);
  return status;
}

}  // namespace moetax
