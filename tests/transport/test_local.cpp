#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <random>
#include <set>

#include "conformance.h"

#if defined(__SANITIZE_THREAD__)
#define MOETAX_UNDER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define MOETAX_UNDER_TSAN 1
#endif
#endif

namespace moetax {
namespace {

#ifdef MOETAX_UNDER_TSAN
constexpr const char* kNoProcesses = "ThreadSanitizer runs a thread of its own, so ranks cannot be forked";
#else
constexpr const char* kNoProcesses = "";
#endif

const Launcher kThreads{"threads", run_threads, ""};
const Launcher kProcesses{"processes", run_processes, kNoProcesses};

const Launcher kThreadNodes{"threads_on_nodes", run_threads, "", 2};
const Launcher kProcessNodes{"processes_on_nodes", run_processes, kNoProcesses, 2};

INSTANTIATE_CONFORMANCE(Local, &kThreads, &kProcesses, &kThreadNodes, &kProcessNodes);

// ---- What only processes can do -----------------------------------------------------------------------------------

class Processes : public testing::Test {
 protected:
  void SetUp() override {
    if (*kNoProcesses) GTEST_SKIP() << kNoProcesses;
  }
};

std::set<std::string> entries_of(const char* folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

// What must not change by running a job. (Listing /proc/self/fd opens one descriptor itself, the same every time.)
struct Traces {
  std::set<std::string> shared_memory = entries_of("/dev/shm");
  std::set<std::string> descriptors = entries_of("/proc/self/fd");
  bool operator==(const Traces&) const = default;
};

// Exchanges without end; what a rank is doing when it is killed is anybody's guess.
Error exchange_until_error(Communicator& comm) {
  std::uint64_t round = 0;
  auto collectives = Collectives::create(comm, patience());
  if (!collectives) return collectives.error();
  std::vector<float> values(20'000, 1.0f);
  for (;;) {
    ++round;
    for (const Rank peer : comm.everyone()) comm.post(Channel::kRows, peer, round);
    if (auto wait = comm.wait(Channel::kRows, comm.everyone(), round, {"dispatch", round}, patience()); !wait) {
      return wait.error();
    }
    if (auto reduced = collectives->all_reduce_sum("reduce", values, patience(), nullptr); !reduced)
      return reduced.error();
    if (auto window = comm.make_window("fleeting", 5'000, patience()); !window) return window.error();
  }
}

TEST_F(Processes, AKilledRankIsNamedByTheOthersAtOnceAndLeavesNothing) {
  const Traces before;
  std::mt19937 random(7);
  for (int round = 0; round < 30; ++round) {
    const int ranks = 2 + round % 4;
    const Rank victim = static_cast<Rank>(random() % static_cast<unsigned>(ranks));
    const auto microseconds = static_cast<useconds_t>(random() % 15'000);
    const auto outcomes = run_processes({ranks}, [&](Communicator& comm) {
      if (comm.rank() == victim) {
        // An executioner of its own, so that the kill falls anywhere in the exchange.
        const pid_t self = getpid();
        if (fork() == 0) {
          usleep(microseconds);
          kill(self, SIGKILL);
          _exit(0);
        }
      }
      const std::int64_t start = now_ns();
      const Error error = exchange_until_error(comm);
      comm.fail(error);
      REQUIRE(error.code == ErrorCode::kPeerFailed);
      REQUIRE(error.rank == victim);
      const std::string named = "rank " + std::to_string(victim) + " was killed by signal 9 (SIGKILL)";
      REQUIRE_TEXT(error.message.substr(0, named.size()), named);
      REQUIRE(now_ns() - start < 30'000'000'000);  // long before its deadline
      return 0;
    });
    ASSERT_TRUE(outcomes) << outcomes.error().message;
    for (const RankOutcome& outcome : *outcomes) {
      EXPECT_EQ(outcome.signal, outcome.rank == victim ? SIGKILL : 0) << "round " << round;
      EXPECT_EQ(outcome.exit_status, outcome.rank == victim ? -1 : 0) << "round " << round << " rank " << outcome.rank;
    }
  }
  EXPECT_EQ(Traces(), before);
}

TEST_F(Processes, ARankKilledBeforeItArrivesIsNamedWithTheOperation) {
  const auto outcomes = run_processes({3}, [](Communicator& comm) {
    if (comm.rank() == 1) {
      const auto wait = comm.wait(Channel::kCall, std::array{0}, 1, {"combine", 16}, patience());
      raise(wait ? SIGKILL : SIGABRT);
    }
    comm.post(Channel::kCall, 1, 1);
    const auto wait = comm.wait(Channel::kRows, std::array{1}, 1, {"dispatch", 17}, patience());
    REQUIRE(!wait && wait.error().rank == 1);
    REQUIRE_TEXT(
        wait.error().message,
        "rank 1 was killed by signal 9 (SIGKILL) before it arrived at dispatch #17 (it was last at combine #16)");
    return 0;
  });
  ASSERT_TRUE(outcomes) << outcomes.error().message;
  EXPECT_EQ((*outcomes)[0].exit_status, 0);
  EXPECT_EQ((*outcomes)[1].signal, SIGKILL);
  EXPECT_EQ((*outcomes)[2].exit_status, 0);
}

TEST_F(Processes, ARankThatLeavesThroughExitIsNamed) {
  const auto outcomes = run_processes({2}, [](Communicator& comm) {
    if (comm.rank() == 1) _exit(3);
    const auto wait = comm.wait(Channel::kRows, std::array{1}, 1, {"rows", 1}, patience());
    REQUIRE(!wait && wait.error().rank == 1);
    REQUIRE_TEXT(wait.error().message, "rank 1 finished with exit status 3 before it arrived at rows #1");
    return 0;
  });
  ASSERT_TRUE(outcomes) << outcomes.error().message;
  EXPECT_EQ((*outcomes)[0].exit_status, 0);
  EXPECT_EQ((*outcomes)[1].exit_status, 3);
}

// Every rank holds the writing end of a pipe, so the reading end sees its end when the last of them is gone.
void expect_ranks_die_with_launcher(int signal) {
  std::array<int, 2> alive{};
  ASSERT_EQ(pipe(alive.data()), 0);
  const pid_t launcher = fork();
  if (launcher == 0) {
    close(alive[0]);
    const auto outcomes = run_processes({3}, [&](Communicator& comm) {
      const char ready = 'r';
      if (write(alive[1], &ready, 1) != 1) return 1;
      return comm.wait(Channel::kRows, std::array{(comm.rank() + 1) % 3}, 1, {"rows", 1}, patience()) ? 1 : 0;
    });
    _exit(outcomes ? 0 : 1);
  }
  close(alive[1]);
  char ready = 0;
  for (int rank = 0; rank < 3; ++rank) ASSERT_EQ(read(alive[0], &ready, 1), 1);
  ASSERT_EQ(kill(launcher, signal), 0);
  int status = 0;
  ASSERT_EQ(waitpid(launcher, &status, 0), launcher);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal);
  pollfd end{alive[0], POLLIN, 0};
  ASSERT_EQ(poll(&end, 1, 30'000), 1) << "ranks outlive their launcher";
  EXPECT_EQ(read(alive[0], &ready, 1), 0);
  close(alive[0]);
}

TEST_F(Processes, RanksDieWithTheirLauncher) {
  const Traces before;
  for (const int signal : {SIGKILL, SIGTERM, SIGINT}) expect_ranks_die_with_launcher(signal);
  EXPECT_EQ(Traces(), before);
}

TEST_F(Processes, AJobLeavesNoDescriptorsAndNoFiles) {
  const Traces before;
  const auto outcomes = run_processes({4}, [](Communicator& comm) {
    auto window = comm.make_window("rows", 1 << 20, patience());
    REQUIRE_OK(window);
    REQUIRE(entries_of("/dev/shm").empty() || entries_of("/dev/shm") == Traces().shared_memory);
    return 0;
  });
  ASSERT_TRUE(outcomes) << outcomes.error().message;
  EXPECT_EQ(Traces(), before);
}

TEST_F(Processes, AreRefusedOnceThereIsAThread) {
  std::atomic<bool> stop{false};
  std::thread thread([&] { stop.wait(false); });
  const auto outcomes = run_processes({2}, [](Communicator&) { return 0; });
  stop = true;
  stop.notify_all();
  thread.join();
  ASSERT_FALSE(outcomes);
  EXPECT_EQ(outcomes.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(outcomes.error().message, testing::HasSubstr("already runs 2 threads"));
}

TEST_F(Processes, BufferedOutputIsPrintedOnce) {
  std::array<int, 2> pipe_ends{};
  ASSERT_EQ(pipe(pipe_ends.data()), 0);
  const pid_t launcher = fork();
  if (launcher == 0) {
    dup2(pipe_ends[1], STDOUT_FILENO);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    std::printf("launcher;");
    const auto outcomes = run_processes({2}, [](Communicator&) {
      std::printf("rank;");
      return 0;
    });
    std::fflush(stdout);
    _exit(outcomes ? 0 : 1);
  }
  close(pipe_ends[1]);
  std::string text;
  std::array<char, 256> buffer{};
  for (ssize_t n = 0; (n = read(pipe_ends[0], buffer.data(), buffer.size())) > 0;) {
    text.append(buffer.data(), static_cast<std::size_t>(n));
  }
  close(pipe_ends[0]);
  int status = 0;
  ASSERT_EQ(waitpid(launcher, &status, 0), launcher);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(text, "launcher;rank;rank;");
}

// ---- What both say no to ------------------------------------------------------------------------------------------

TEST(Local, RefusesNumbersOfRanksThatMakeNoSense) {
  for (const int ranks : {0, -1, 1025}) {
    const auto outcomes = run_threads({ranks}, [](Communicator&) { return 0; });
    ASSERT_FALSE(outcomes);
    EXPECT_EQ(outcomes.error().code, ErrorCode::kUsage);
    EXPECT_THAT(outcomes.error().message, testing::HasSubstr(std::to_string(ranks)));
  }
}

TEST(Local, AJobOfThreadsLeavesNoDescriptorsAndNoFiles) {
  const Traces before;
  const auto outcomes =
      run_threads({4}, [](Communicator& comm) { return comm.make_window("rows", 1 << 20, patience()) ? 0 : 1; });
  ASSERT_TRUE(outcomes) << outcomes.error().message;
  EXPECT_EQ(Traces(), before);
}

// Bytes of pages that the job's shared memory holds.
std::int64_t shared_bytes() {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (std::filesystem::read_symlink(entry.path(), gone).string().find("/memfd:moetax") != 0) continue;
    struct stat status {};
    if (stat(entry.path().c_str(), &status) == 0) return status.st_blocks * 512;
  }
  return -1;
}

TEST(Local, PagesOfDroppedWindowsGoBack) {
  const auto outcomes = run_threads({2}, [](Communicator& comm) {
    auto collectives = Collectives::create(comm, patience());
    REQUIRE_OK(collectives);
    for (int i = 0; i < 20; ++i) {
      auto window = comm.make_window("fleeting", 1 << 20, patience());
      REQUIRE_OK(window);
      std::memset(window->local(), 1, window->reserved_bytes());
      REQUIRE_OK(collectives->barrier("written", patience()));
      REQUIRE(shared_bytes() >= 2 << 20);
      REQUIRE_OK(collectives->barrier("looked", patience()));
    }
    REQUIRE_OK(collectives->barrier("dropped", patience()));
    REQUIRE(shared_bytes() < 1 << 20);
    return 0;
  });
  ASSERT_TRUE(outcomes) << outcomes.error().message;
  for (const RankOutcome& outcome : *outcomes) EXPECT_EQ(outcome.exit_status, 0);
}

}  // namespace
}  // namespace moetax
