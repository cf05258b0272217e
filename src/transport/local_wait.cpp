// How a rank waits: it spins for about as long as a wake-up costs, then sleeps.
#include <algorithm>
#include <utility>

#include "transport/futex.h"
#include "transport/local_communicator.h"
#include "transport/wait_board.h"

namespace moetax {
namespace {

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

// A rank that must look for itself whether something moved takes naps. They grow with the wait, so that a long one
// costs little CPU and none becomes longer by more than a sixteenth.
constexpr std::int64_t kNapNs = 50'000, kLongestNapNs = 1'000'000;
// With nothing of its own under way it still looks now and then, for news from other nodes and for ranks that died.
constexpr std::int64_t kGlanceNs = 5'000'000;

// The flags of one wait, looked at in the order given. Flags only grow: who has arrived needs no second look.
class Arrivals final : public Awaited {
 public:
  Arrivals(const FlagLine* lines, std::span<const Rank> from, Rank self, std::uint64_t value)
      : lines_(lines), from_(from), self_(self), value_(value) {}

  bool complete() override {
    while (next_ < from_.size() && is_here(from_[next_])) ++next_;
    return next_ == from_.size();
  }
  std::span<const Rank> peers() const override { return from_; }
  bool is_here(Rank peer) const override { return peer == self_ || lines_[peer].is_up(value_); }
  Rank ringer() const override { return from_[next_]; }

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

}  // namespace

Result<Wait> LocalCommunicator::wait(Channel channel, std::span<const Rank> from, std::uint64_t value,
                                     Operation operation, Deadline deadline) {
  return wait_lines(group_.lines_to(rank_, channel), from, value, operation, deadline);
}

Result<Wait> LocalCommunicator::wait_lines(const FlagLine* lines, std::span<const Rank> from, std::uint64_t value,
                                           Operation operation, Deadline deadline) {
  Arrivals arrivals(lines, from, rank_, value);
  Wait outcome;
  MOETAX_TRY(wait_for(arrivals, operation, deadline, outcome));
  arrivals.note_last(outcome);
  return outcome;
}

Result<void> LocalCommunicator::wait_for(Awaited& awaited, Operation operation, Deadline deadline, Wait& outcome) {
  enter(operation);
  if (awaited.complete()) return {};
  if (job_.link) {  // what has come from other nodes needs to be looked at
    progress();
    if (awaited.complete()) return {};
  }
  outcome.start_ns = now_ns();
  wait_board().comm = this;
  wait_board().awaited = &awaited;
  auto waited = idle(awaited, operation, deadline, outcome);
  wait_board().awaited = nullptr;
  MOETAX_TRY(std::move(waited));
  outcome.end_ns = now_ns();
  return {};
}

Result<void> LocalCommunicator::idle(Awaited& awaited, Operation operation, Deadline deadline, Wait& outcome) {
  // Asked after the end of `world` was seen: what it had sent is there by now and has to be taken in first.
  const auto is_missing = [&](Rank world) {
    progress();
    const auto is_it = [&](Rank peer) {
      return world_rank(peer) == world && !awaited.is_here(peer) && heard_out(peer);
    };
    return std::any_of(awaited.peers().begin(), awaited.peers().end(), is_it);
  };
  std::uint32_t endings = 0;  // those already looked at: none in a healthy job
  while (!spin(awaited, endings, deadline, outcome)) {
    if (const std::uint32_t now = this->endings(); now != endings) {
      endings = now;
      auto error = roster_.explain(world_rank(rank_), is_missing, operation);
      // A wait that is satisfied after all is no error.
      if (awaited.complete()) return {};
      if (error) return Unexpected(std::move(*error));
    } else if (deadline.passed()) {
      auto error = late(awaited, operation, deadline);
      if (!error) return {};
      return Unexpected(std::move(*error));
    } else {
      sleep(awaited, endings, deadline, outcome);
    }
  }
  return {};
}

bool LocalCommunicator::spin(Awaited& awaited, std::uint32_t endings, Deadline deadline, Wait& outcome) {
  std::int64_t last = now_ns();
  const std::int64_t until = std::min(last + job_.spin_ns, deadline.at_ns());
  while (last < until) {
    progress();
    for (int look = 0; look < kLooksPerBurst; ++look) {
      if (awaited.complete()) return true;
      pause_cpu();
    }
    const std::int64_t now = now_ns();
    if (now - last > kGapNs) outcome.off_cpu_ns += now - last;
    if (this->endings() != endings) return false;
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
// Messages and other nodes have no bell: where they are waited for, sleeps are short.
void LocalCommunicator::sleep(Awaited& awaited, std::uint32_t endings, Deadline deadline, const Wait& outcome) {
  RankState& self = roster_.state(world_rank(rank_));
  const std::uint32_t seen = self.doorbell.load(std::memory_order_seq_cst);
  Rank ringer = awaited.ringer();
  if (ringer != kNoRank && is_far(ringer)) ringer = kNoRank;
  const bool must_look = ringer == kNoRank || !messages_->idle();
  if (ringer != kNoRank) {
    self.sleeping_on.store(static_cast<std::uint32_t>(world_rank(ringer)) + 1, std::memory_order_seq_cst);
  }
  const bool here = ringer != kNoRank && awaited.is_here(ringer);
  if (!here && this->endings() == endings) {
    futex_wait(self.doorbell, seen, std::min(deadline.at_ns(), nap_until_ns(must_look, outcome)));
  }
  self.sleeping_on.store(0, std::memory_order_relaxed);
  progress();
}

std::int64_t LocalCommunicator::nap_until_ns(bool must_look, const Wait& outcome) const {
  if (!must_look && !job_.link) return INT64_MAX;
  const std::int64_t now = now_ns();
  return now + (must_look ? std::clamp((now - outcome.start_ns) / 16, kNapNs, kLongestNapNs) : kGlanceNs);
}

// Nothing if the missing have come after all.
std::optional<Error> LocalCommunicator::late(const Awaited& awaited, Operation operation, Deadline deadline) const {
  std::vector<Rank> missing;
  std::vector<Rank> present{world_rank(rank_)};
  for (const Rank peer : awaited.peers()) {
    if (peer != rank_) (awaited.is_here(peer) ? present : missing).push_back(world_rank(peer));
  }
  if (missing.empty()) return std::nullopt;
  std::sort(missing.begin(), missing.end());
  std::sort(present.begin(), present.end());
  return roster_.late(missing, present, operation, deadline.seconds());
}

}  // namespace moetax
