// Bad input: one line on standard error that names the place and what to do, and the right exit code.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/command.h"

namespace moetax::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

void expect_refused(const std::vector<std::string>& arguments, int exit_code, const std::vector<std::string>& words) {
  std::vector<std::string> all = {"bench"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  const CommandResult result = run_command(all);
  EXPECT_EQ(result.exit_code, exit_code) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(lines_of(result.err).size(), 1u) << result.err;
  for (const std::string& word : words) EXPECT_THAT(result.err, HasSubstr(word));
}

std::vector<std::string> tiny(std::vector<std::string> more) {
  std::vector<std::string> all = {"--hidden", "32",       "--inter", "16",      "--experts", "8",        "--topk",
                                  "2",        "--tokens", "8",       "--steps", "1",         "--warmup", "0"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

TEST(BenchErrors, NoModel) {
  expect_refused({}, 2, {"--preset", "--config", "--hidden"});
}
TEST(BenchErrors, TwoModels) {
  expect_refused({"--preset", "olmoe-1b-7b", "--config", "x.json"}, 2, {"--preset", "--config"});
}
TEST(BenchErrors, UnknownPresetNamesTheNearest) {
  expect_refused({"--preset", "deepseek-v2-light"}, 2, {"deepseek-v2-light", "deepseek-v2-lite"});
}
TEST(BenchErrors, UnknownOption) {
  expect_refused(tiny({"--rank", "2"}), 2, {"--rank"});
}
TEST(BenchErrors, NotANumber) {
  expect_refused(tiny({"--ranks", "two"}), 2, {"two"});
}

TEST(BenchErrors, FewerExpertsThanTopK) {
  expect_refused(tiny({"--topk", "9"}), 2, {"8", "9"});
}
TEST(BenchErrors, GroupsThatDoNotDivide) {
  expect_refused(tiny({"--groups", "3"}), 2, {"3", "8"});
}
TEST(BenchErrors, ZeroAndNegativeSizes) {
  expect_refused(tiny({"--hidden", "0"}), 2, {"--hidden 0"});
  expect_refused(tiny({"--inter", "-4"}), 2, {"--inter -4", "positive"});
  expect_refused(tiny({"--ranks", "0"}), 2, {"--ranks 0"});
  expect_refused(tiny({"--steps", "0"}), 2, {"--steps 0"});
  expect_refused(tiny({"--tokens", "-1"}), 2, {"--tokens '-1'"});
  expect_refused(tiny({"--experts", "0"}), 2, {"experts"});
}
TEST(BenchErrors, ChoosingNeedsMeasuredCosts) {
  expect_refused(tiny({"--nodes", "2", "--exchange", "auto"}), 2, {"--machine", "moetax calibrate"});
  expect_refused(tiny({"--decompose"}), 2, {"--decompose", "--machine"});
  expect_refused(tiny({"--latency-limit", "5"}), 2, {"--latency-limit", "auto"});
  expect_refused(tiny({"--tax-limit", "-5", "--exchange", "auto"}), 2, {"--tax-limit -5"});
  expect_refused(tiny({"--machine", "/nowhere/machine.json"}), 3, {"/nowhere/machine.json"});
}
TEST(BenchErrors, CostsOfOneNodeDoNotPredictTwo) {
  const std::string machine = temporary_path("one_node.json");
  ASSERT_EQ(run_command({"calibrate", "--out", machine}).exit_code, 0);
  expect_refused(tiny({"--nodes", "2", "--machine", machine}), 2, {machine, "was not measured", "1 node"});
}
TEST(BenchErrors, SizesBeyondAnyModel) {
  expect_refused(tiny({"--hidden", "99999999999"}), 2, {"99999999999"});
}

TEST(BenchErrors, WhatWasTypedCannotBreakTheLine) {
  expect_refused(tiny({"--tokens", "8\n8"}), 2, {"'8?8'"});
  expect_refused(tiny({"--delay", "1:\n5"}), 2, {"'1:?5'"});
  expect_refused(tiny({"--routing", "a\033[31m\nb"}), 2, {"'a?[31m?b'"});
  expect_refused(tiny({"--fail-on", "tax\n>5%"}), 2, {"'tax?>5%'"});
}

TEST(BenchErrors, TokensPerRankMustMatchTheRanks) {
  expect_refused(tiny({"--ranks", "2", "--tokens", "1,2,3"}), 2, {"3 numbers", "2 ranks"});
}
TEST(BenchErrors, Delays) {
  expect_refused(tiny({"--delay", "5"}), 2, {"--delay '5'", "RANK:MS"});
  expect_refused(tiny({"--delay", "2:5"}), 2, {"no rank 2 of 2"});
  expect_refused(tiny({"--delay", "1:nan"}), 2, {"1:nan"});
  expect_refused(tiny({"--delay", "4294967297:5"}), 2, {"4294967297:5", "RANK:MS"});  // 2^32 + 1 is not rank 1
  expect_refused(tiny({"--delay", "1:5ms"}), 2, {"1:5ms"});
}
TEST(BenchErrors, Thresholds) {
  expect_refused(tiny({"--fail-on", "taxes>5%"}), 2, {"taxes>5%"});
}
TEST(BenchErrors, Deadline) {
  expect_refused(tiny({"--deadline", "0"}), 2, {"--deadline"});
}
TEST(BenchErrors, OverlapGoesForwardOnly) {
  expect_refused(tiny({"--overlap", "0"}), 2, {"--overlap 0", "1 to 64"});
  expect_refused(tiny({"--overlap", "2", "--backward"}), 2, {"--overlap", "leave --backward out"});
  expect_refused(tiny({"--overlap", "2", "--machine", "m.json"}), 2, {"--machine", "whole batches"});
}
TEST(BenchErrors, ReplicaSize) {
  expect_refused(tiny({"--ranks", "3", "--ep-size", "2"}), 2, {"--ep-size 2", "3"});
}

TEST(BenchErrors, BeyondMemoryNamesWhatWouldFit) {
  expect_refused({"--hidden", "8192", "--inter", "8192", "--experts", "4096", "--topk", "2", "--tokens", "8"}, 4,
                 {"needs", "available", "the largest --experts that fits is"});
}

TEST(BenchErrors, UnreadableConfig) {
  expect_refused({"--config", "/nonexistent/config.json"}, 3, {"/nonexistent"});
}
TEST(BenchErrors, ConfigThatIsNotJson) {
  expect_refused({"--config", write_file("broken.json", "{\"hidden_size\": ")}, 3, {"broken.json"});
}
TEST(BenchErrors, ConfigOfAnotherKind) {
  expect_refused({"--config", write_file("other.json", R"({"name": "package", "version": 3})")}, 3, {"other.json"});
}

TEST(BenchErrors, UnknownRouting) {
  expect_refused(tiny({"--routing", "zip:2"}), 2, {"zip:2", "zipf:S"});
}
TEST(BenchErrors, ZipfWithoutExponent) {
  expect_refused(tiny({"--routing", "zipf:x"}), 2, {"zipf:x"});
}
TEST(BenchErrors, CountsOfAnotherModel) {
  const std::string path = write_file("counts.csv", "layer_id,expert_id,count\n1,0,5\n1,63,7\n");
  expect_refused(tiny({"--routing", "counts:" + path}), 3, {"counts.csv:3", "63", "8"});
}
TEST(BenchErrors, CountsWithoutTheLayer) {
  const std::string path = write_file("layers.csv", "layer_id,expert_id,count\n1,0,5\n1,7,7\n2,0,1\n2,7,3\n");
  expect_refused(tiny({"--routing", "counts:" + path + ":9"}), 3, {"layers.csv", "9", "1", "2"});
}
TEST(BenchErrors, CountsThatCannotBeRead) {
  expect_refused(tiny({"--routing", "counts:/nonexistent.csv"}), 3, {"/nonexistent.csv"});
}
TEST(BenchErrors, OutputThatCannotBeWrittenIsToldBeforeTheRun) {
  expect_refused(tiny({"--json", "/nonexistent/bill.json"}), 2, {"/nonexistent/bill.json"});
}

TEST(BenchErrors, RecordingsNeedAFile) {
  expect_refused(tiny({"--record-routing", "-"}), 2, {"--record-routing", "file"});
  expect_refused(tiny({"--record-routing", "/dev/null"}), 2, {"--record-routing /dev/null", "no file"});
  expect_refused(tiny({"--record-routing", "/nonexistent/routes.txt"}), 2, {"/nonexistent/routes.txt"});
}

TEST(Verbs, UnknownVerbAndHelp) {
  const CommandResult unknown = run_command({"benhc"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("benhc"));
  const CommandResult help = run_command({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, HasSubstr("bench"));
  EXPECT_EQ(run_command({"bench", "--help"}).exit_code, 0);
  const CommandResult info = run_command({"info"});
  EXPECT_EQ(info.exit_code, 0) << info.err;
  for (const char* word : {"processor", "cores", "memory", "products", "transports    local-processes: ",
                           "\n              local-threads: ", "exchanges     flat: ", "MPI"}) {
    EXPECT_THAT(info.out, HasSubstr(word));
  }
  EXPECT_THAT(info.out, Not(HasSubstr("AVX3")));
}

}  // namespace
}  // namespace moetax::testing
