#include "moetax/transport/mpi.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <utility>

#include "transport/local_communicator.h"
#include "transport/mpi_link.h"
#include "transport/mpi_setup.h"

namespace moetax {
namespace {

// What a rank has once it joined.
struct Joined {
  LocalJob job;
  std::shared_ptr<MpiLink> link;
  Rank rank = 0;
};

Result<void> check_usable(MPI_Comm comm) {
  int initialized = 0, finalized = 0, provided = MPI_THREAD_SINGLE, is_inter = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (!initialized || finalized) return fail(ErrorCode::kUsage, "MPI is not initialised: call MPI_Init_thread first");
  MPI_Query_thread(&provided);
  if (provided < MPI_THREAD_FUNNELED) {
    return fail(ErrorCode::kUsage, "MPI has MPI_THREAD_SINGLE: call MPI_Init_thread with MPI_THREAD_FUNNELED");
  }
  if (comm != MPI_COMM_NULL) MPI_Comm_test_inter(comm, &is_inter);
  if (comm == MPI_COMM_NULL || is_inter) return fail(ErrorCode::kUsage, "an MPI intracommunicator is needed");
  return {};
}

Result<Joined> join(MPI_Comm comm, const MpiOptions& options) {
  MOETAX_TRY(check_usable(comm));
  const Deadline deadline = Deadline::in_seconds(options.setup_s);
  MOETAX_ASSIGN(const MPI_Comm own, MpiTalk::duplicate(comm, deadline));
  MpiTalk talk(own, deadline);
  constexpr int kMaxRanks = 1024;
  if (talk.size() > kMaxRanks) {
    return fail(ErrorCode::kUsage, fmt::format("{} ranks: at most {} are possible", talk.size(), kMaxRanks));
  }
  MOETAX_ASSIGN(MpiNode node, find_node(talk, options, deadline));
  Joined joined;
  joined.rank = talk.rank();
  joined.job = {node.segment, talk.size(), node.places, "mpi", LocalJob::spin_for(node.ranks_here, node.cores_here)};
  joined.link = std::make_shared<MpiLink>(MpiLink::Setup{.comm = own,
                                                         .self = talk.rank(),
                                                         .ranks = talk.size(),
                                                         .segment = node.segment,
                                                         .places = node.places,
                                                         .offset_ns = std::move(node.offset_ns),
                                                         .mates = std::move(node.mates)});
  joined.job.link = joined.link;
  return joined;
}

// Looks for news until `reached`, or the deadline.
template <class Reached>
void wait_until(MpiLink& link, Deadline deadline, Reached reached) {
  const std::int64_t start = now_ns();
  for (link.progress(); !reached(); link.progress()) {
    const std::int64_t now = now_ns();
    if (now >= deadline.at_ns()) return;
    const timespec nap{0, std::clamp<long>((now - start) / 16, 20'000, 1'000'000)};
    nanosleep(&nap, nullptr);
  }
}

bool is_gone(const Roster& roster, Rank rank) {
  return roster.left(rank) || roster.state(rank).ending.load() == Ending::kKilled;
}

// Until all ranks are through, but not for long once one has failed.
void wait_for_all(const Joined& joined, double linger_s) {
  constexpr double kAfterFailureS = 0.5;  // launchers end everybody a second after a rank died: be first
  const Roster roster = joined.job.roster();
  const auto all_gone = [&] {
    for (Rank rank = 0; rank < joined.job.ranks; ++rank) {
      if (!is_gone(roster, rank)) return false;
    }
    return true;
  };
  const auto failed = [&] {
    for (Rank rank = 0; rank < joined.job.ranks; ++rank) {
      const Ending ending = roster.state(rank).ending.load();
      if (ending == Ending::kFailed || ending == Ending::kKilled) return true;
    }
    return false;
  };
  wait_until(*joined.link, Deadline::in_seconds(linger_s), [&] { return all_gone() || failed(); });
  if (failed()) wait_until(*joined.link, Deadline::in_seconds(std::min(kAfterFailureS, linger_s)), all_gone);
}

std::vector<RankOutcome> outcomes_of(const Joined& joined) {
  const Roster roster = joined.job.roster();
  std::vector<RankOutcome> outcomes;
  for (Rank rank = 0; rank < joined.job.ranks; ++rank) {
    RankOutcome outcome{.rank = rank, .error = roster.said(rank)};
    if (const auto status = roster.left(rank)) {
      outcome.exit_status = *status;
    } else {
      outcome.exit_status = -1;
      outcome.given_up = !is_gone(roster, rank);
    }
    outcomes.push_back(std::move(outcome));
  }
  return outcomes;
}

}  // namespace

Result<std::unique_ptr<Communicator>> join_mpi(MPI_Comm comm, const MpiOptions& options) {
  MOETAX_ASSIGN(const Joined joined, join(comm, options));
  return std::unique_ptr<Communicator>(new LocalCommunicator(joined.job, joined.rank));
}

Result<std::vector<RankOutcome>> run_mpi(MPI_Comm comm, const MpiOptions& options,
                                         const std::function<int(Communicator&)>& body,
                                         const std::function<void(const std::vector<RankOutcome>&)>& report) {
  MOETAX_ASSIGN(const Joined joined, join(comm, options));
  joined.link->tell_left(live(joined.job, joined.rank, body));
  wait_for_all(joined, options.linger_s);
  std::vector<RankOutcome> outcomes = outcomes_of(joined);
  if (joined.rank == 0) {
    if (report) report(outcomes);
    joined.link->tell_reported();
  } else {
    const Roster roster = joined.job.roster();
    const auto reported = [&] { return roster.reported() || roster.state(0).ending.load() == Ending::kKilled; };
    wait_until(*joined.link, Deadline::in_seconds(1), reported);
  }
  return outcomes;
}

}  // namespace moetax
