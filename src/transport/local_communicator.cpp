#include "transport/local_communicator.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "transport/futex.h"

namespace moetax {
namespace {

// A sleep and its wake-up cost about this much, so a longer spin never pays.
constexpr std::int64_t kSpinNs = 50'000;
// With more ranks than cores the rank waited for may need this core: only what is about to arrive is worth a spin.
constexpr std::int64_t kSpinCrowdedNs = 2'000;
// Looks at the flag between two readings of the clock.
constexpr int kLooksPerBurst = 32;
// A burst takes about half a microsecond. When this much has passed meanwhile, something else was running here. (The
// thread's CPU clock would say the same, but reading it can cost more than a microsecond, and it misses what a
// hypervisor takes.)
constexpr std::int64_t kGapNs = 20'000;

inline void pause_cpu() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

int usable_cores() {
  cpu_set_t cores;
  return sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

std::vector<Rank> first_ranks(int count) {
  std::vector<Rank> ranks(static_cast<std::size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// An acquire; seq_cst for the sake of sleep(), see there, and the same instruction on x86 and Arm.
bool is_up(const FlagLine& line, std::uint64_t value) {
  return line.value.load(std::memory_order_seq_cst) >= value;
}

}  // namespace

Result<LocalJob> LocalJob::create(int ranks, int ranks_per_node, std::string_view transport) {
  constexpr int kMaxRanks = 1024;
  if (ranks < 1 || ranks > kMaxRanks) {
    return moetax::fail(ErrorCode::kUsage, fmt::format("cannot start {} ranks: give 1 to {}", ranks, kMaxRanks));
  }
  LocalJob job{nullptr, ranks, ranks_per_node, transport, ranks <= usable_cores() ? kSpinNs : kSpinCrowdedNs};
  MOETAX_ASSIGN(job.segment, Segment::create(Roster::bytes(ranks) + Group::bytes(ranks)));
  return job;
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
      group_(group, static_cast<int>(members_.size())) {
  everyone_ = first_ranks(size());
}

Node LocalCommunicator::node_of(Rank rank) const {
  return job_.ranks_per_node > 0 ? world_rank(rank) / job_.ranks_per_node : 0;
}

void LocalCommunicator::fail(const Error& error) {
  roster_.stop(world_rank(rank_), error);
}

void LocalCommunicator::post(Channel channel, Rank to, std::uint64_t value) {
  post_line(group_.lines_to(to, channel)[rank_], to, value);
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
  return from == rank_ || is_up(group_.lines_to(rank_, channel)[from], value);
}

// The peers of one wait, looked at in the order given. Flags only grow: who has arrived needs no second look.
class LocalCommunicator::Arrivals {
 public:
  Arrivals(const FlagLine* lines, std::span<const Rank> from, Rank self, std::uint64_t value)
      : lines_(lines), from_(from), self_(self), value_(value) {}

  bool complete() {
    while (next_ < from_.size() && is_here(from_[next_])) ++next_;
    return next_ == from_.size();
  }
  Rank awaited() const { return from_[next_]; }  // while not complete
  bool is_here(Rank peer) const { return peer == self_ || is_up(lines_[peer], value_); }
  std::span<const Rank> from() const { return from_; }

  void note_last(Wait& outcome) const {
    for (const Rank peer : from_) {
      if (peer == self_) continue;
      const std::int64_t posted = lines_[peer].posted_ns.load(std::memory_order_relaxed);
      if (outcome.last != kNoRank && posted <= outcome.last_posted_ns) continue;
      outcome.last = peer;
      outcome.last_posted_ns = posted;
    }
  }

 private:
  const FlagLine* lines_;  // towards this rank, by sender
  std::span<const Rank> from_;
  Rank self_;
  std::uint64_t value_;
  std::size_t next_ = 0;
};

Result<Wait> LocalCommunicator::wait(Channel channel, std::span<const Rank> from, std::uint64_t value,
                                     Operation operation, Deadline deadline) {
  return wait_lines(group_.lines_to(rank_, channel), from, value, operation, deadline);
}

Result<Wait> LocalCommunicator::wait_lines(const FlagLine* lines, std::span<const Rank> from, std::uint64_t value,
                                           Operation operation, Deadline deadline) const {
  roster_.enter(world_rank(rank_), operation);
  Arrivals arrivals(lines, from, rank_, value);
  Wait outcome;
  if (!arrivals.complete()) {
    outcome.start_ns = now_ns();
    MOETAX_TRY(idle(arrivals, operation, deadline, outcome));
    outcome.end_ns = now_ns();
  }
  arrivals.note_last(outcome);
  return outcome;
}

Result<void> LocalCommunicator::idle(Arrivals& arrivals, Operation operation, Deadline deadline, Wait& outcome) const {
  const auto is_missing = [&](Rank world) {
    const auto is_it = [&](Rank peer) { return world_rank(peer) == world && !arrivals.is_here(peer); };
    return std::any_of(arrivals.from().begin(), arrivals.from().end(), is_it);
  };
  std::uint32_t endings = 0;  // those already looked at: none in a healthy job
  while (!spin(arrivals, endings, deadline, outcome)) {
    if (const std::uint32_t now = roster_.endings(); now != endings) {
      endings = now;
      auto error = roster_.explain(world_rank(rank_), is_missing, operation);
      // A wait that is satisfied after all is no error.
      if (arrivals.complete()) return {};
      if (error) return Unexpected(std::move(*error));
    } else if (deadline.passed()) {
      auto error = late(arrivals, operation, deadline);
      if (!error) return {};
      return Unexpected(std::move(*error));
    } else {
      sleep(arrivals, endings, deadline);
    }
  }
  return {};
}

bool LocalCommunicator::spin(Arrivals& arrivals, std::uint32_t endings, Deadline deadline, Wait& outcome) const {
  std::int64_t last = now_ns();
  const std::int64_t until = std::min(last + job_.spin_ns, deadline.at_ns());
  while (last < until) {
    for (int look = 0; look < kLooksPerBurst; ++look) {
      if (arrivals.complete()) return true;
      pause_cpu();
    }
    const std::int64_t now = now_ns();
    if (now - last > kGapNs) outcome.off_cpu_ns += now - last;
    if (roster_.endings() != endings) return false;
    last = now;
  }
  return false;
}

// Sleeps until the awaited peer posts, a rank ends, or the deadline passes. No wake-up is lost:
// - The poster stores the flag, then loads sleeping_on; the sleeper stores sleeping_on, then loads the flag. All four
//   are seq_cst, so they have one order, in which at least one of the two loads comes after the other side's store:
//   either the sleeper sees the flag and stays up, or the poster sees the sleeper and rings.
// - A ring between that load and the system call changes the doorbell, which the kernel compares with `seen`. `seen` is
//   read before sleeping_on is stored, so it cannot already contain the ring that answers this store.
// - A rank's ending counts `endings` first and rings every doorbell afterwards: a sleeper whose `seen` contains that
// ring
//   sees the new count.
// Only one peer is asked to ring. When it has arrived, the others mostly have too, and a rank that waits for many wakes
// up once instead of once for each.
void LocalCommunicator::sleep(const Arrivals& arrivals, std::uint32_t endings, Deadline deadline) const {
  RankState& self = roster_.state(world_rank(rank_));
  const std::uint32_t seen = self.doorbell.load(std::memory_order_seq_cst);
  self.sleeping_on.store(static_cast<std::uint32_t>(world_rank(arrivals.awaited())) + 1, std::memory_order_seq_cst);
  if (!arrivals.is_here(arrivals.awaited()) && roster_.endings() == endings) {
    futex_wait(self.doorbell, seen, deadline.at_ns());
  }
  self.sleeping_on.store(0, std::memory_order_relaxed);
}

// Nothing if the missing have come after all.
std::optional<Error> LocalCommunicator::late(const Arrivals& arrivals, Operation operation, Deadline deadline) const {
  std::vector<Rank> missing;
  std::vector<Rank> present{world_rank(rank_)};
  for (const Rank peer : arrivals.from()) {
    if (peer != rank_) (arrivals.is_here(peer) ? present : missing).push_back(world_rank(peer));
  }
  if (missing.empty()) return std::nullopt;
  std::sort(missing.begin(), missing.end());
  std::sort(present.begin(), present.end());
  return roster_.late(missing, present, operation, deadline.seconds());
}

}  // namespace moetax
