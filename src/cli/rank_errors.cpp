#include "cli/rank_errors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <string>

#include "cli/cli.h"

namespace moetax::cli {

namespace {

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

Result<RankErrors> RankErrors::open() {
  int fds[2];
  if (pipe2(fds, O_NONBLOCK | O_CLOEXEC) != 0) {
    return fail(ErrorCode::kInternal, fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  }
  return RankErrors(fds[0], fds[1]);
}

RankErrors::RankErrors(RankErrors&& other) noexcept : read_fd_(other.read_fd_), write_fd_(other.write_fd_) {
  other.read_fd_ = other.write_fd_ = -1;
}

RankErrors::~RankErrors() {
  if (read_fd_ >= 0) close(read_fd_);
  if (write_fd_ >= 0) close(write_fd_);
}

void RankErrors::send(const Error& error) const {
  std::string line = fmt::format("{} {} {}", static_cast<int>(error.code), error.rank, error.message);
  std::replace(line.begin(), line.end(), '\n', ' ');
  line.resize(std::min<std::size_t>(line.size(), PIPE_BUF - 1));
  line += '\n';
  // A full pipe already holds the reasons of other ranks; it must not stop this one from ending.
  [[maybe_unused]] const ssize_t written = write(write_fd_, line.data(), line.size());
}

std::optional<Error> RankErrors::cause(const std::vector<RankOutcome>& outcomes) const {
  std::string text;
  char buffer[4096];
  for (ssize_t got = 0; (got = read(read_fd_, buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<std::size_t>(got));
  }
  std::optional<Error> best;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    int code = 0, rank = kNoRank, used = 0;
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    if (std::sscanf(line.c_str(), "%d %d %n", &code, &rank, &used) != 2) continue;
    const Error error{static_cast<ErrorCode>(code), line.substr(static_cast<std::size_t>(used)), rank};
    if (!best || (best->code == ErrorCode::kPeerFailed && error.code != ErrorCode::kPeerFailed)) best = error;
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
