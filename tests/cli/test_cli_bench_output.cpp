// Where the bill goes, and what happens when it cannot go there: one line, an exit code, nothing hung.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "cli/command.h"

namespace moetax::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::vector<std::string> tiny(std::vector<std::string> more) {
  std::vector<std::string> all = {"bench", "--hidden", "32", "--inter",  "16", "--experts",
                                  "8",     "--topk",   "2",  "--tokens", "8",  "--steps",
                                  "2",     "--warmup", "0",  "--ranks",  "2"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

void expect_told(const CommandResult& result, const std::string& where) {
  EXPECT_EQ(result.exit_code, 4) << result.err;
  ASSERT_EQ(lines_of(result.err).size(), 1u) << result.err;
  EXPECT_THAT(result.err, HasSubstr("moetax: cannot write " + where + ": "));
}

TEST(BenchOutput, JsonToStandardOutputIsAllThatIsThere) {
  const CommandResult result = run_command(tiny({"--json", "-"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(json::parse(result.out).at("schema"), "moetax.bill/1");
  EXPECT_EQ(result.err, "");
}

TEST(BenchOutput, TraceToStandardOutputIsAllThatIsThere) {
  const std::string bill = temporary_path("bill.json");
  const CommandResult result = run_command(tiny({"--trace", "-", "--json", bill}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_GT(json::parse(result.out).at("traceEvents").size(), 10u);
  EXPECT_EQ(run_command(tiny({"--json", bill})).exit_code, 0);  // over the one that is there
}

TEST(BenchOutput, TwoThingsCannotGoToOnePlace) {
  const CommandResult result = run_command(tiny({"--trace", "-", "--json", "-"}));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--json and --trace"));
}

TEST(BenchOutput, AFullDiskIsTold) {
  expect_told(run_command(tiny({}), {.out = "/dev/full"}), "standard output");
  expect_told(run_command(tiny({"--json", "-"}), {.out = "/dev/full"}), "standard output");
  expect_told(run_command(tiny({"--trace", "-"}), {.out = "/dev/full"}), "standard output");
  expect_told(run_command(tiny({"--json", "/dev/full"})), "'/dev/full'");
  expect_told(run_command(tiny({"--trace", "/dev/full"})), "'/dev/full'");
}

TEST(BenchOutput, AFullDiskIsToldByEveryVerb) {
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"info"}, {"--help"}, {"--version"}, {"info", "--help"}, {"bench", "--help"}}) {
    expect_told(run_command(arguments, {.out = "/dev/full"}), "standard output");
  }
}

// The files that a run opens must not take the place of a closed stream: the bill would end up in one of them.
TEST(BenchOutput, ClosedStreamsStayClosed) {
  expect_told(run_command(tiny({}), {.closed = {STDOUT_FILENO}}), "standard output");
  expect_told(run_command(tiny({}), {.closed = {STDIN_FILENO, STDOUT_FILENO}}), "standard output");
  expect_told(run_command({"info"}, {.closed = {STDOUT_FILENO}}), "standard output");
  const std::string bill = temporary_path("closed.json");
  const CommandResult silent = run_command(tiny({"--json", bill}), {.closed = {0, 1, 2}});
  EXPECT_EQ(silent.exit_code, 4);
  EXPECT_EQ(silent.out + silent.err, "");
  EXPECT_EQ(run_command(tiny({}), {.closed = {STDIN_FILENO}}).exit_code, 0);
  EXPECT_EQ(run_command(tiny({}), {.closed = {STDERR_FILENO}}).exit_code, 0);
}

}  // namespace
}  // namespace moetax::testing
