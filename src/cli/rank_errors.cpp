#include "cli/rank_errors.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <string>

#include "cli/cli.h"

namespace moetax::cli {

namespace {

// The lower the nearer to the cause: a rank's own trouble, what it saw of a peer, what it heard from others.
int distance(const Error& error) {
  if (error.code != ErrorCode::kPeerFailed) return 0;
  return error.message.find(" stopped: ") == std::string::npos ? 1 : 2;
}

// Zero, or rank 0's verdict on a threshold.
bool is_answer(const RankOutcome& outcome) {
  return outcome.exit_status == 0 || (outcome.rank == 0 && outcome.exit_status == kThresholdCrossed);
}

// oneDNN follows null pointers where memory cannot be had; a limit on it is the likely reason then.
std::string limit_text(int signal) {
  rlimit limit{};
  if (signal != SIGSEGV || getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  return fmt::format("; its address space is limited to {} KiB, raise ulimit -v", limit.rlim_cur / 1024);
}

}  // namespace

std::optional<Error> cause_of(const std::vector<RankOutcome>& outcomes) {
  std::optional<Error> best;
  for (const RankOutcome& outcome : outcomes) {
    if (outcome.error && (!best || distance(*outcome.error) < distance(*best))) best = outcome.error;
  }
  if (best) return best;
  for (const RankOutcome& outcome : outcomes) {
    if (outcome.given_up || (outcome.signal == 0 && is_answer(outcome))) continue;
    if (outcome.signal == 0) {
      return Error{ErrorCode::kPeerFailed,
                   fmt::format("rank {} ended with status {} and no word why", outcome.rank, outcome.exit_status),
                   outcome.rank};
    }
    return Error{ErrorCode::kPeerFailed,
                 fmt::format("rank {} was killed by signal {} ({}){}", outcome.rank, outcome.signal,
                             strsignal(outcome.signal), limit_text(outcome.signal)),
                 outcome.rank};
  }
  return std::nullopt;
}

}  // namespace moetax::cli
