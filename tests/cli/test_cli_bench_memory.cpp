// The estimate that decides whether a run is started, against what runs take.
#include <gtest/gtest.h>

#include "cli/bench_memory.h"
#include "cli/command.h"

namespace moetax::cli {
namespace {

using testing::CommandResult;
using testing::run_command;

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

double needed(const BenchOptions& options) {
  return memory_needed(options, probe_host().bf16);
}

BenchOptions parse(std::vector<std::string> arguments) {
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  auto options = parse_bench_options(static_cast<int>(argv.size()), argv.data(), 2);
  EXPECT_TRUE(options) << options.error().message;
  return **options;
}

std::vector<std::string> with(std::vector<std::string> more) {
  std::vector<std::string> all = {"bench", "--hidden", "512", "--inter",   "512", "--experts",
                                  "16",    "--topk",   "4",   "--steps",   "1",   "--warmup",
                                  "1",     "--ranks",  "1",   "--threads", "1"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

class Memory : public ::testing::TestWithParam<std::vector<std::string>> {};

// With one rank the largest process is all there is.
TEST_P(Memory, EstimateIsNotBelowThePeakNorTwiceIt) {
  if (kSanitized) GTEST_SKIP() << "the address sanitizer takes memory of its own";
  const std::vector<std::string> arguments = with(GetParam());
  const CommandResult result = run_command(arguments);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const double peak = static_cast<double>(result.peak_bytes), estimate = needed(parse(arguments));
  EXPECT_GE(estimate, peak);
  EXPECT_LE(estimate, 2 * peak);
}

using Options = std::vector<std::string>;
INSTANTIATE_TEST_SUITE_P(
    Runs, Memory,
    ::testing::Values(Options{"--tokens", "8"},                                      // weights
                      Options{"--tokens", "8192"},                                   // rows
                      Options{"--tokens", "1024", "--layers", "4", "--backward"},    // gradients, what is kept
                      Options{"--tokens", "4096", "--backward", "--recompute"},      // nothing is kept
                      Options{"--tokens", "4096", "--backward", "--shared", "2"},    // shared experts
                      Options{"--tokens", "2048", "--backward", "--dtype", "fp32"},  //
                      Options{"--tokens", "4096", "--routing", "zipf:3", "--threads",
                              "2"},  // one expert with most rows
                      Options{"--hidden", "64", "--inter", "48", "--tokens", "4", "--steps", "10000"},  // ledgers
                      Options{"--hidden", "64", "--inter", "48", "--tokens", "4", "--layers", "4", "--backward"}));

// Each rank's own; pages that two ranks share are counted for both, so the sum is no less than what they take.
TEST(MemoryOfRanks, EstimateGrowsWithRanksAsTheirMemoryDoes) {
  if (kSanitized) GTEST_SKIP() << "the address sanitizer takes memory of its own";
  for (const Options& ranks : {Options{"--ranks", "4"}, Options{"--ranks", "4", "--ep-size", "2"}}) {
    Options more = {"--tokens", "2048", "--backward", "--shared", "1"};
    more.insert(more.end(), ranks.begin(), ranks.end());
    const CommandResult result = run_command(with(more));
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const double estimate = needed(parse(with(more)));
    EXPECT_GE(estimate, 0.9 * 4 * static_cast<double>(result.peak_bytes));
    EXPECT_LE(estimate, 2 * 4 * static_cast<double>(result.peak_bytes));
  }
}

TEST(MemoryOfRanks, OptionsThatCostMemoryAreInTheEstimate) {
  const double plain = needed(parse(with({"--tokens", "1024", "--ranks", "2"})));
  for (const Options& costly : {Options{"--layers", "2"}, Options{"--backward"}, Options{"--dtype", "fp32"},
                                Options{"--shared", "1"}, Options{"--ep-size", "1"}, Options{"--steps", "1000"}}) {
    Options more = {"--tokens", "1024", "--ranks", "2"};
    more.insert(more.end(), costly.begin(), costly.end());
    EXPECT_GT(needed(parse(with(more))), plain) << costly[0];
  }
}

TEST(CheckMemory, NamesNeededAvailableAndWhatWouldFit) {
  const BenchOptions options = parse(with({"--tokens", "8", "--experts", "64"}));
  HostInfo host;
  host.bf16 = true;
  host.available_bytes = static_cast<std::size_t>(memory_needed(options, true)) + 1;
  EXPECT_TRUE(check_memory(options, host));
  host.available_bytes -= 2;
  const Result<void> refused = check_memory(options, host);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(refused.error().message.find("the largest --experts that fits is 63"), std::string::npos)
      << refused.error().message;
  BenchOptions fitting = options;
  fitting.model.router.experts = 63;
  EXPECT_TRUE(check_memory(fitting, host));
  host.bf16 = false;
  EXPECT_FALSE(check_memory(fitting, host));
}

}  // namespace
}  // namespace moetax::cli
