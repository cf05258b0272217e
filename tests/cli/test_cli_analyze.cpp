// moetax analyze: files and folders in, a bill out, and what was not used with its reason.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/command.h"

namespace moetax::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

std::string kernel(const std::string& name, int ts, int dur) {
  return R"({"ph":"X","cat":"kernel","name":")" + name + R"(","pid":0,"tid":7,"ts":)" + std::to_string(ts) +
         R"(,"dur":)" + std::to_string(dur) + R"(,"args":{"device":0,"stream":7}})";
}

// Rank 1 comes 300 us late to an exchange of 100 us.
std::string trace(int rank, int world = 2) {
  const int arrival = rank == 1 ? 400 : 100;
  return R"({"distributedInfo":{"rank":)" + std::to_string(rank) + R"(,"world_size":)" + std::to_string(world) +
         R"(},"traceEvents":[)" + kernel("gemm(int)", 0, arrival) + "," +
         kernel("ncclDevKernel_SendRecv(int)", arrival, 500 - arrival) + "]}";
}

std::string folder_of(const std::string& name, const std::vector<std::pair<std::string, std::string>>& files) {
  const std::string folder = temporary_path(name);
  std::filesystem::create_directories(folder);
  for (const auto& [file, text] : files) std::ofstream(folder + "/" + file) << text;
  return folder;
}

json bill_of(const std::vector<std::string>& arguments) {
  std::vector<std::string> all{"analyze", "--json", "-"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  const CommandResult result = run_command(all);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return json::parse(result.out, nullptr, false);
}

TEST(Analyze, AFolderIsOneJob) {
  const std::string folder = folder_of("job", {{"a.json", trace(0)}, {"b.json", trace(1)}});
  const json bill = bill_of({folder});
  ASSERT_FALSE(bill.is_discarded());
  EXPECT_EQ(bill["schema"], "moetax.bill/1");
  ASSERT_EQ(bill["ranks"].size(), 2u);
  EXPECT_EQ(bill["ranks"][0]["wait_us"], 300.0);
  EXPECT_EQ(bill["ranks"][0]["wire_us"], 100.0);
  EXPECT_EQ(bill["ranks"][0]["waited_for"][0]["rank"], 1);
  EXPECT_EQ(bill["ranks"][0]["waited_for"][0]["cause"], "compute");
  EXPECT_EQ(bill["exchanges"][0]["last_rank"], 1);
  EXPECT_EQ(bill["sources"].size(), 2u);
}

TEST(Analyze, OneRankLeavesWaitingOpen) {
  const std::string folder = folder_of("single", {{"a.json", trace(0)}, {"b.json", trace(1)}});
  const json bill = bill_of({folder, "--rank", "0"});
  EXPECT_TRUE(bill["tax"]["wait_us"].is_null());
  EXPECT_EQ(bill["exposed_us"], 400.0);
  const CommandResult text = run_command({"analyze", folder + "/a.json"});
  EXPECT_THAT(text.out, HasSubstr("cannot be told apart with one rank"));
}

TEST(Analyze, WhatWasNotUsedIsSaid) {
  const std::string folder = folder_of("mixed", {{"a.json", trace(0)},
                                                 {"a_copy.json", trace(0)},
                                                 {"b.json", trace(1)},
                                                 {"other_job.json", trace(3, 64)},
                                                 {"readme.txt", "hello"},
                                                 {"cut.json", trace(1).substr(0, 150)}});
  const CommandResult result = run_command({"analyze", folder});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("holds the same events as"));
  EXPECT_THAT(result.out, HasSubstr("is of another job (64 ranks"));
  EXPECT_THAT(result.out, HasSubstr("begins with byte 0x68"));
  EXPECT_THAT(result.out, HasSubstr("2 devices from 2 files"));
  const CommandResult redacted = run_command({"analyze", folder, "--redact"});
  EXPECT_THAT(redacted.out, Not(HasSubstr(folder)));
  EXPECT_THAT(redacted.out, HasSubstr("holds the same events as file"));
}

TEST(Analyze, NothingThatCanBeUsed) {
  const std::string file = write_file("config.json", R"({"hidden_size":12})");
  const CommandResult result = run_command({"analyze", file});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, HasSubstr("has no \"traceEvents\""));
  EXPECT_EQ(lines_of(result.err).size(), 1u);
  EXPECT_EQ(run_command({"analyze", temporary_path("no-such-file")}).exit_code, 3);
  EXPECT_EQ(run_command({"analyze"}).exit_code, 2);
}

TEST(Analyze, AUsersRules) {
  const std::string rules = write_file("rules.txt", "compute - - - nccl*SendRecv\n");
  const std::string file = write_file("rules_trace.json", trace(0));
  EXPECT_EQ(bill_of({file, "--rules", rules})["comm_us"], 0.0);
  const CommandResult bad = run_command({"analyze", file, "--rules", write_file("bad.txt", "nonsense\n")});
  EXPECT_EQ(bad.exit_code, 3);
  EXPECT_THAT(bad.err, HasSubstr("bad.txt:1:"));
}

// Rank 1's clock is 1000 us ahead; on the timeline the exchanges end together.
TEST(Analyze, OneTimelineOfAllRanks) {
  std::string ahead = trace(1);
  for (const auto& [from, to] : {std::pair("\"ts\":0,", "\"ts\":1000,"), std::pair("\"ts\":400,", "\"ts\":1400,")}) {
    ahead.replace(ahead.find(from), std::string(from).size(), to);
  }
  const std::string folder = folder_of("clocks", {{"a.json", trace(0)}, {"b.json", ahead}});
  const std::string out = temporary_path("merged.json");
  ASSERT_EQ(run_command({"analyze", folder, "--trace", out}).exit_code, 0);
  std::ifstream file(out);
  const json merged = json::parse(file, nullptr, false);
  ASSERT_FALSE(merged.is_discarded());
  std::vector<double> ends;
  for (const json& event : merged["traceEvents"]) {
    if (event.value("cat", "") == "communication")
      ends.push_back(event["ts"].get<double>() + event["dur"].get<double>());
  }
  EXPECT_THAT(ends, ::testing::ElementsAre(500, 500));
}

TEST(Analyze, NoDeviceIsNoCrash) {
  const std::string file = write_file(
      "host.json", R"({"traceEvents":[{"ph":"X","cat":"cpu_op","name":"o","pid":1,"tid":1,"ts":1,"dur":2}]})");
  const CommandResult result = run_command({"analyze", file});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("No work on a device"));
}

TEST(Analyze, TablesAreToldWithoutABill) {
  const std::string load = "layer_id,expert_id,count\n0,0,30\n0,1,10\n";
  const std::string folder = folder_of("tables", {{"load.csv", load}});
  const CommandResult alone = run_command({"analyze", folder});
  EXPECT_EQ(alone.exit_code, 0) << alone.err;
  EXPECT_THAT(alone.out, HasSubstr("load.csv: expert load\nLoads of 2 experts"));
  const CommandResult bill = run_command({"analyze", folder, "--json", "-"});
  EXPECT_EQ(bill.exit_code, 3);
  EXPECT_THAT(bill.err, HasSubstr("without times of day"));
  const std::string both = folder_of("both", {{"load.csv", load}, {"a.json", trace(0)}, {"b.json", trace(1)}});
  const CommandResult text = run_command({"analyze", both, "--redact"});
  EXPECT_THAT(text.out,
              ::testing::AllOf(HasSubstr("Tax "), HasSubstr("table 1: expert load"), Not(HasSubstr("load.csv"))));
}

}  // namespace
}  // namespace moetax::testing
