// The plug-in itself, see mpi_plugin.h. The one place of the command that is linked with MPI.
#include "cli/mpi_plugin.h"

#include <fmt/format.h>
#include <mpi.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>

#include "build_info.h"
#include "cli/launched.h"
#include "cli/watchdog.h"
#include "moetax/transport/mpi.h"

namespace moetax::cli {
namespace {

constexpr double kFinalizeS = 10;
constexpr int kPeerFailedExit = 5;

// "Open MPI v4.1.4, package: ..." and "MPICH Version:      4.0.2\nMPICH Release date: ..." in a few words.
std::string library() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING + 1> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  std::string words;
  for (const char* at = text.data(); *at != '\0' && *at != ',' && *at != '\n'; ++at) {
    const bool is_blank = *at == ' ' || *at == '\t';
    if (!is_blank || (!words.empty() && words.back() != ' ')) words += is_blank ? ' ' : *at;
  }
  return words;
}

// ---- The end of a rank that is told to go -------------------------------------------------------------------------

pid_t main_thread = 0;

// The launcher ends the other ranks when one has died: each says what it was at. Only calls that a handler may make.
void on_terminate(int) {
  const auto self = static_cast<pid_t>(syscall(SYS_gettid));
  if (self != main_thread) {  // the thread that waits knows for whom
    syscall(SYS_tgkill, getpid(), main_thread, SIGTERM);
    return;
  }
  std::array<char, 512> line{};
  constexpr char kStart[] = "moetax: ended by SIGTERM: ";
  std::memcpy(line.data(), kStart, sizeof kStart - 1);
  std::size_t length = sizeof kStart - 1;
  length += describe_wait(line.data() + length, line.size() - length - 1);
  line[length++] = '\n';
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), length);
  signal(SIGTERM, SIG_DFL);
  raise(SIGTERM);
}

void say_goodbye_on_terminate() {
  main_thread = static_cast<pid_t>(syscall(SYS_gettid));
  struct sigaction action {};
  action.sa_handler = on_terminate;
  sigemptyset(&action.sa_mask);
  sigaction(SIGTERM, &action, nullptr);
}

// ---- Start and end ------------------------------------------------------------------------------------------------

Result<std::vector<RankOutcome>> run(const MpiRun& options, const std::function<int(Communicator&)>& body,
                                     const std::function<void(const std::vector<RankOutcome>&)>& report) {
  {
    const Rank rank = launched_rank().value_or(LaunchedRank{}).rank;
    const Watchdog watchdog(
        options.deadline_s,
        fmt::format("rank {}: MPI_Init did not return within {:g} s: not all ranks have started, or "
                    "they cannot reach each other",
                    rank, options.deadline_s),
        kPeerFailedExit);
    int provided = MPI_THREAD_SINGLE;
    if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS) {
      return fail(ErrorCode::kUnavailable, "MPI_Init_thread failed");
    }
  }
  const auto watched_body = [&](Communicator& world) {
    say_goodbye_on_terminate();
    const int status = body(world);
    signal(SIGTERM, SIG_IGN);  // it ends by itself now, and what is to be said will be
    return status;
  };
  return run_mpi(MPI_COMM_WORLD,
                 {.ranks_per_node = options.ranks_per_node,
                  .setup_s = options.deadline_s,
                  .linger_s = options.deadline_s,
                  .watch_parent = true},
                 watched_body, report);
}

void leave(int exit_code, bool healthy) {
  std::fflush(nullptr);
  if (!healthy) _exit(exit_code);
  const Watchdog watchdog(kFinalizeS, "", exit_code);  // all is done and said: nobody needs to wait for it
  MPI_Finalize();
}

constexpr MpiPlugin kPlugin{MpiPlugin::kAbi, kBuildId, library, run, leave};

}  // namespace
}  // namespace moetax::cli

extern "C" __attribute__((visibility("default"))) const moetax::cli::MpiPlugin* moetax_mpi_plugin() {
  return &moetax::cli::kPlugin;
}
