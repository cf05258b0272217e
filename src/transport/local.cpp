#include "moetax/transport/local.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <system_error>
#include <thread>

#include "transport/local_communicator.h"

namespace moetax {
namespace {

using Body = std::function<int(Communicator&)>;

// ---- Processes ----------------------------------------------------------------------------------------------------

int count_threads() {
  std::error_code ignored;
  int threads = 0;
  for (std::filesystem::directory_iterator entry("/proc/self/task", ignored), end; entry != end;
       entry.increment(ignored)) {
    ++threads;
  }
  return threads;
}

Result<void> check_single_thread() {
  // A thread that has been joined may stay listed for a moment, while the kernel clears it away.
  int threads = count_threads();
  for (int tries = 0; threads > 1 && tries < 50; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    threads = count_threads();
  }
  if (threads <= 1) return {};
  return fail(
      ErrorCode::kUnavailable,
      fmt::format("cannot start ranks as processes: this process already runs {} threads; start the ranks before "
                  "the first thread (the first OpenMP region, say)",
                  threads));
}

// A pidfd. Through the system call, because the C library's declaration is not usable from C++ everywhere.
int open_handle(pid_t pid) {
  return static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
}

// The rank processes of one job. Those that still run when it goes out of scope are killed.
class Children {
 public:
  explicit Children(const LocalJob& job) : job_(job), parent_(getpid()) {}
  ~Children() {
    for (const Child& child : children_) {
      if (!child.running) continue;
      ::kill(child.pid, SIGKILL);
      while (waitpid(child.pid, nullptr, 0) < 0 && errno == EINTR) continue;
      close(child.handle);
    }
  }
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;

  Result<void> start(Rank rank, const Body& body);
  // Once a rank has ended badly the others have `linger_s` to end too: one that is stopped or stuck never would.
  Result<std::vector<RankOutcome>> wait_for_all(double linger_s);

 private:
  struct Child {
    pid_t pid = 0;
    int handle = -1;  // pidfd: becomes readable when the process ends; cannot mean another process later
    bool running = true;
    RankOutcome outcome;
  };
  [[noreturn]] void run_child(Rank rank, const Body& body);
  Result<void> reap(Child& child);
  void give_up_running();

  const LocalJob& job_;
  pid_t parent_;
  std::vector<Child> children_;
};

Result<void> Children::start(Rank rank, const Body& body) {
  const pid_t pid = fork();
  if (pid == 0) run_child(rank, body);
  if (pid < 0) return fail(ErrorCode::kUnavailable, fmt::format("cannot fork rank {}: {}", rank, std::strerror(errno)));
  children_.push_back({pid, open_handle(pid), true, {rank}});
  if (children_.back().handle >= 0) return {};
  return fail(ErrorCode::kUnavailable, fmt::format("cannot watch rank {}: pidfd_open: {}", rank, std::strerror(errno)));
}

void Children::run_child(Rank rank, const Body& body) {
  // Die with the parent. If it died before this line took effect, this process has a new parent already.
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent_) _exit(kBodyThrew);
  for (const Child& sibling : children_) close(sibling.handle);
  const int status = live(job_, rank, body);
  std::cout.flush();
  std::fflush(nullptr);
  _exit(status);
}

Result<std::vector<RankOutcome>> Children::wait_for_all(double linger_s) {
  std::vector<pollfd> handles;
  for (const Child& child : children_) handles.push_back({child.handle, POLLIN, 0});
  int timeout_ms = -1;
  for (std::size_t running = children_.size(); running > 0;) {
    const int ready = poll(handles.data(), handles.size(), timeout_ms);
    if (ready < 0) {
      if (errno == EINTR) continue;
      return fail(ErrorCode::kInternal, fmt::format("cannot wait for the ranks: {}", std::strerror(errno)));
    }
    if (ready == 0) {
      give_up_running();
      timeout_ms = -1;
    }
    for (std::size_t i = 0; i < handles.size(); ++i) {
      if (handles[i].fd < 0 || handles[i].revents == 0) continue;
      MOETAX_TRY(reap(children_[i]));
      handles[i].fd = -1;  // poll skips it from now on
      --running;
      const RankOutcome& outcome = children_[i].outcome;
      if (outcome.signal != 0 || outcome.exit_status != 0) timeout_ms = static_cast<int>(linger_s * 1e3);
    }
  }
  std::vector<RankOutcome> outcomes;
  for (const Child& child : children_) {
    outcomes.push_back(child.outcome);
    outcomes.back().error = job_.roster().said(child.outcome.rank);
  }
  return outcomes;
}

void Children::give_up_running() {
  for (Child& child : children_) {
    if (!child.running) continue;
    ::kill(child.pid, SIGKILL);
    child.outcome.given_up = true;
  }
}

// Takes the exit status of a child that has ended, and lets the other ranks know at once.
Result<void> Children::reap(Child& child) {
  int status = 0;
  while (waitpid(child.pid, &status, 0) < 0) {
    if (errno == EINTR) continue;
    child.running = false;
    close(child.handle);
    return fail(ErrorCode::kInternal, fmt::format("the exit status of rank {} was taken by somebody else: {}",
                                                  child.outcome.rank, std::strerror(errno)));
  }
  child.running = false;
  close(child.handle);
  const Roster roster = job_.roster();
  if (WIFSIGNALED(status)) {
    child.outcome.signal = WTERMSIG(status);
    child.outcome.exit_status = -1;
    roster.kill(child.outcome.rank, child.outcome.signal);
  } else {
    child.outcome.exit_status = WEXITSTATUS(status);
    roster.bury(child.outcome.rank, child.outcome.exit_status);
  }
  return {};
}

}  // namespace

Result<std::vector<RankOutcome>> run_processes(const LocalOptions& options, const Body& body) {
  MOETAX_TRY(check_single_thread());
  MOETAX_ASSIGN(const LocalJob job, LocalJob::create(options.ranks, options.ranks_per_node, "local-processes"));
  // What is buffered now would otherwise be printed once more by every child.
  std::cout.flush();
  std::fflush(nullptr);
  Children children(job);
  for (Rank rank = 0; rank < options.ranks; ++rank) MOETAX_TRY(children.start(rank, body));
  return children.wait_for_all(options.linger_s);
}

// ---- Threads ------------------------------------------------------------------------------------------------------

Result<std::vector<RankOutcome>> run_threads(const LocalOptions& options, const Body& body) {
  MOETAX_ASSIGN(const LocalJob job, LocalJob::create(options.ranks, options.ranks_per_node, "local-threads"));
  std::vector<RankOutcome> outcomes(static_cast<std::size_t>(options.ranks));
  std::vector<std::thread> threads;
  std::optional<Error> refused;
  for (Rank rank = 0; rank < options.ranks && !refused; ++rank) {
    try {
      threads.emplace_back([&job, &body, &outcome = outcomes[static_cast<std::size_t>(rank)], rank] {
        outcome = {rank, live(job, rank, body), 0};
      });
    } catch (const std::system_error& error) {
      refused =
          Error{ErrorCode::kUnavailable, fmt::format("cannot start a thread for rank {}: {}", rank, error.what())};
      job.roster().stop(rank, *refused);  // those that have started must not wait for it
    }
  }
  for (std::thread& thread : threads) thread.join();
  for (RankOutcome& outcome : outcomes) outcome.error = job.roster().said(outcome.rank);
  if (refused) return Unexpected(std::move(*refused));
  return outcomes;
}

}  // namespace moetax
