// moetax bench under an MPI launcher: the same flags, the same bill, the same bits; and how it ends when something is
// wrong. On one machine nodes are made by --nodes, and then rows go through MPI.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "cli/command.h"

namespace moetax::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Commands of this program are the launcher (see CMakeLists.txt).
std::vector<std::string> mpirun(int ranks, const std::vector<std::string>& arguments,
                                const std::vector<std::string>& launcher_options = {}) {
  std::vector<std::string> all = launcher_options;
  all.insert(all.end(), {"-n", std::to_string(ranks), MOETAX_PROGRAM, "bench", "--hidden", "64", "--inter", "48",
                         "--experts", "16", "--topk", "2", "--tokens", "64", "--steps", "3"});
  all.insert(all.end(), arguments.begin(), arguments.end());
  return all;
}

std::string line_with(const std::string& text, const std::string& what) {
  for (const std::string& line : lines_of(text)) {
    if (line.find(what) != std::string::npos) return line;
  }
  return "";
}

// Without a launcher in the environment, or this would be one of its ranks.
std::string hash_of_local_ranks(int ranks, const std::string& more) {
  const std::string out = temporary_path("local.txt");
  const std::string command = std::string(MOETAX_PROGRAM) +
                              " bench --hidden 64 --inter 48 --experts 16 --topk 2 --tokens 64 --steps 3 --ranks " +
                              std::to_string(ranks) + " " + more + " > " + out;
  if (std::system(command.c_str()) != 0) return "";
  std::ifstream file(out);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  return line_with(text, "Output hash");
}

class BenchUnderMpi : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1);
  }
};

constexpr int kRanks = MOETAX_MPI_RANKS;

TEST_F(BenchUnderMpi, PrintsOneBillWithTheBitsOfLocalRanks) {
  const std::string json = temporary_path("bill.json");
  const CommandResult result = run_command(mpirun(kRanks, {"--json", json}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::string local = hash_of_local_ranks(kRanks, "");
  EXPECT_NE(local, "");
  EXPECT_EQ(line_with(result.out, "Output hash"), local);
  const std::vector<std::string> lines = lines_of(result.out);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), local), 1) << "only rank 0 prints";
  const auto bill = nlohmann::json::parse(std::ifstream(json));
  EXPECT_EQ(bill["config"]["ranks"], kRanks);
  EXPECT_EQ(bill["config"]["nodes"], 1);
  EXPECT_EQ(bill["config"]["hosts"].size(), 1u);
  EXPECT_EQ(bill["config"]["transport"], "mpi");
  EXPECT_TRUE(bill["machine"]["mpi"].is_string());
}

TEST_F(BenchUnderMpi, RowsBetweenNodesKeepTheBits) {
  for (const char* exchange : {"flat", "direct", "ring", "mesh2d", "two-level"}) {
    const CommandResult result = run_command(mpirun(kRanks, {"--nodes", "2", "--exchange", exchange, "--backward"}));
    ASSERT_EQ(result.exit_code, 0) << exchange << ": " << result.err;
    const std::string local = hash_of_local_ranks(kRanks, std::string("--nodes 2 --backward --exchange ") + exchange);
    EXPECT_NE(local, "");
    EXPECT_EQ(line_with(result.out, "Output hash"), local) << exchange;
    EXPECT_THAT(result.out, HasSubstr("2 nodes ("));
  }
}

TEST_F(BenchUnderMpi, CalibrateMeasuresTheLinksOfTheJob) {
  const std::string out = temporary_path("machine.json");
  const CommandResult result =
      run_command({"-n", std::to_string(kRanks), MOETAX_PROGRAM, "calibrate", "--nodes", "2", "--out", out});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("written to " + out));
  const auto machine = nlohmann::json::parse(std::ifstream(out));
  EXPECT_EQ(machine["transport"], "mpi");
  EXPECT_EQ(machine["ranks"], kRanks);
  EXPECT_EQ(machine["nodes"], 2);
  const CommandResult refused =
      run_command({"-n", std::to_string(kRanks), MOETAX_PROGRAM, "calibrate", "--out", "/nowhere/machine.json"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("/nowhere/machine.json"));
}

TEST_F(BenchUnderMpi, TheNumberOfRanksMustAgree) {
  EXPECT_EQ(run_command(mpirun(kRanks, {"--ranks", std::to_string(kRanks)})).exit_code, 0);
  const CommandResult result = run_command(mpirun(kRanks, {"--ranks", "7"}));
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_THAT(result.err, HasSubstr("--ranks 7: the launcher started " + std::to_string(kRanks)));
}

// Every rank meets the same error; it is said once.
TEST_F(BenchUnderMpi, ErrorsAreSaidOnceWithTheirExitCode) {
  const std::vector<std::pair<std::vector<std::string>, int>> cases = {
      {{"--preset", "nope"}, 2},
      {{"--config", "/nowhere/config.json"}, 3},
      {{"--tokens", "16000000", "--topk", "16", "--hidden", "1000000"}, 4},
  };
  for (const auto& [arguments, code] : cases) {
    const CommandResult result = run_command(mpirun(kRanks, arguments));
    EXPECT_EQ(result.exit_code, code) << result.err;
    int said = 0;
    for (const std::string& line : lines_of(result.err)) said += line.starts_with("moetax: ") ? 1 : 0;
    EXPECT_EQ(said, 1) << result.err;
  }
}

TEST_F(BenchUnderMpi, AThresholdIsAnAnswer) {
  const CommandResult result = run_command(mpirun(kRanks, {"--fail-on", "tax>0.001%"}));
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(result.out, HasSubstr("Output hash"));
}

TEST_F(BenchUnderMpi, HelpIsPrintedOnce) {
  const CommandResult result = run_command(mpirun(kRanks, {"--help"}));
  EXPECT_EQ(result.exit_code, 0);
  const std::vector<std::string> lines = lines_of(result.out);
  const auto is_usage = [](const std::string& line) { return line.find("Usage: moetax bench") == 0; };
  EXPECT_EQ(std::count_if(lines.begin(), lines.end(), is_usage), 1) << result.out;
}

// ---- Trouble ------------------------------------------------------------------------------------------------------

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::vector<pid_t> ranks_of(const Command& command, std::size_t count) {
  std::vector<pid_t> ranks = command.wait_for_children(count);
  std::this_thread::sleep_for(std::chrono::milliseconds(700));  // into the steps
  return ranks;
}

// A process that is a zombie is over; its parent may have died without taking its status.
bool lives(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string stat;
  if (!std::getline(file, stat)) return false;
  const std::size_t after_name = stat.rfind(')');
  return after_name != std::string::npos && stat[after_name + 2] != 'Z';
}

bool all_end_within(const std::vector<pid_t>& processes, double seconds) {
  const auto start = std::chrono::steady_clock::now();
  while (std::any_of(processes.begin(), processes.end(), lives)) {
    if (seconds_since(start) > seconds) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

std::set<std::string> own_shared_memory() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    const std::string name = entry.path().filename();
    if (name.find("moetax") != std::string::npos) names.insert(name);
  }
  return names;
}

const std::vector<std::string> kEndless = {"--steps", "1000000", "--deadline", "3"};

// Who sleeps longer than the deadline is named, with its exchange, whether or not it is on the node of those who wait.
TEST_F(BenchUnderMpi, ALateRankIsNamedByTheDeadline) {
  for (const char* nodes : {"1", "2"}) {
    const std::string delay = std::to_string(kRanks - 1) + ":60000";
    const auto start = std::chrono::steady_clock::now();
    Command command(mpirun(kRanks, {"--nodes", nodes, "--deadline", "1", "--delay", delay}));
    const std::vector<pid_t> ranks = command.wait_for_children(static_cast<std::size_t>(kRanks));
    const CommandResult result = command.wait();
    EXPECT_EQ(result.exit_code, 5) << result.err;
    EXPECT_LT(seconds_since(start), 20);
    EXPECT_THAT(result.err, HasSubstr("moetax: rank " + std::to_string(kRanks - 1)));
    EXPECT_THAT(result.err, HasSubstr("did not arrive at dispatch #"));
    if (*nodes == '2') {
      EXPECT_THAT(result.err, HasSubstr("(node 1, host "));
    }
    EXPECT_TRUE(all_end_within(ranks, 10));
  }
}

// Where the launcher lets the others live they say who died, across nodes too, long before the deadline.
TEST_F(BenchUnderMpi, AKilledRankIsNamedWhereTheOthersLiveOn) {
  if (std::string(MOETAX_MPI).find("Open MPI") == std::string::npos) {
    GTEST_SKIP() << "only Open MPI lets the others live, by --enable-recovery";
  }
  for (const char* nodes : {"1", "2"}) {
    std::vector<std::string> arguments = kEndless;
    arguments.insert(arguments.end(), {"--nodes", nodes, "--deadline", "20"});
    Command command(mpirun(kRanks, arguments, {"--enable-recovery"}));
    const std::vector<pid_t> ranks = ranks_of(command, static_cast<std::size_t>(kRanks));
    ASSERT_EQ(ranks.size(), static_cast<std::size_t>(kRanks));
    const auto start = std::chrono::steady_clock::now();
    ASSERT_EQ(kill(ranks.back(), SIGKILL), 0);
    EXPECT_TRUE(all_end_within(ranks, 15)) << nodes << " nodes";
    EXPECT_LT(seconds_since(start), 15) << "the deadline is 20 s";
    const CommandResult result = command.wait();
    EXPECT_THAT(result.err, HasSubstr("moetax: rank " + std::to_string(kRanks - 1)));
    EXPECT_THAT(result.err, HasSubstr("ended without a word"));
  }
  EXPECT_TRUE(own_shared_memory().empty());
}

// A launcher that ends the ranks: each says what it was at.
TEST_F(BenchUnderMpi, RanksThatAreToldToEndSayWhatTheyWereAt) {
  Command command(mpirun(kRanks, {"--deadline", "60", "--delay", "0:60000"}));
  const std::vector<pid_t> ranks = ranks_of(command, static_cast<std::size_t>(kRanks));
  ASSERT_EQ(ranks.size(), static_cast<std::size_t>(kRanks));
  ASSERT_EQ(kill(command.pid(), SIGTERM), 0);
  EXPECT_TRUE(all_end_within(ranks, 20));
  const CommandResult result = command.wait();
  EXPECT_THAT(result.err, HasSubstr("moetax: ended by SIGTERM: rank 1 waits at dispatch #"));
  EXPECT_THAT(result.err, HasSubstr(" for ranks 0"));
  EXPECT_THAT(result.err, HasSubstr("moetax: ended by SIGTERM: rank 0, last at "));
}

TEST_F(BenchUnderMpi, RanksEndWithALauncherThatWasKilled) {
  std::vector<pid_t> ranks;
  {
    Command command(mpirun(kRanks, kEndless));
    ranks = ranks_of(command, static_cast<std::size_t>(kRanks));
    ASSERT_EQ(ranks.size(), static_cast<std::size_t>(kRanks));
    kill(command.pid(), SIGKILL);
    EXPECT_EQ(command.wait().exit_code, 128 + SIGKILL);
  }
  EXPECT_TRUE(all_end_within(ranks, 5)) << "the deadline is 3 s, and there are two more";
  EXPECT_TRUE(own_shared_memory().empty());
}

}  // namespace
}  // namespace moetax::testing
