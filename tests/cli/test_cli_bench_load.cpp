// Whole runs under load.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/command.h"

namespace moetax::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::vector<std::string> small(std::vector<std::string> more) {
  std::vector<std::string> all = {"bench", "--hidden", "64", "--inter", "48", "--experts", "16", "--topk",
                                  "4",     "--tokens", "24", "--steps", "1",  "--warmup",  "0"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

json stress_of(std::vector<std::string> more) {
  more.insert(more.end(), {"--json", "-"});
  const CommandResult result = run_command(small(std::move(more)));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return json::parse(result.out, nullptr, false).value("stress", json::array());
}

void expect_sound(const json& level, std::int64_t requests) {
  EXPECT_EQ(level.at("latency_us").at("count"), requests) << level;
  EXPECT_GT(level.at("latency_us").at("p50"), 0);
  EXPECT_GE(level.at("latency_us").at("p99"), level.at("latency_us").at("p50"));
  EXPECT_GT(level.at("tokens_per_s"), 0);
  EXPECT_GT(level.at("tax_share"), 0);
  EXPECT_LT(level.at("tax_share"), 1);
}

TEST(BenchLoad, EveryLevelServesItsRequests) {
  const json levels = stress_of({"--ranks", "2", "--concurrency", "1,5", "--rate", "400", "--requests", "12",
                                 "--request", "0+3,10+2", "--baseline", "replicas"});
  ASSERT_EQ(levels.size(), 2u * 3u * 2u);
  for (std::size_t i = 0; i < levels.size(); ++i) {
    expect_sound(levels[i], 12);
    EXPECT_EQ(levels[i].at("replicas"), i % 2 == 1);
    EXPECT_EQ(levels[i].at("output"), i < 6 ? 3 : 2);
    EXPECT_EQ(levels[i].at("prompt"), i < 6 ? 0 : 10);
  }
  // One at a time: rank 1 has nothing to do but to hold experts; every step is one token.
  EXPECT_EQ(levels[0].at("concurrency"), 1);
  EXPECT_EQ(levels[0].at("steps"), 12 * 3);
  EXPECT_EQ(levels[4].at("rate"), 400);
  EXPECT_TRUE(levels[4].at("concurrency").is_null());
}

TEST(BenchLoad, MoreRequestsThanABatchHoldsWait) {
  const json levels = stress_of({"--ranks", "2", "--concurrency", "64", "--requests", "64", "--request", "24+0"});
  ASSERT_EQ(levels.size(), 1u);
  expect_sound(levels[0], 64);
  EXPECT_EQ(levels[0].at("steps"), 32);  // a rank takes one at a time
}

TEST(BenchLoad, TheBaselineAloneIsFullBatches) {
  const json levels = stress_of({"--ranks", "2", "--baseline", "replicas", "--requests", "6", "--layers", "2"});
  ASSERT_EQ(levels.size(), 2u);
  EXPECT_EQ(levels[0].at("prompt"), 24);
  EXPECT_EQ(levels[1].at("steps"), 3);
}

TEST(BenchLoad, OverNodesAndWithGivenRoutes) {
  const json levels = stress_of({"--ranks", "4", "--nodes", "2", "--exchange", "two-level", "--routing", "zipf:1",
                                 "--concurrency", "6", "--requests", "12", "--request", "4+2"});
  ASSERT_EQ(levels.size(), 1u);
  expect_sound(levels[0], 12);
}

TEST(BenchLoad, TheTableSaysWhoServed) {
  const CommandResult result = run_command(
      small({"--ranks", "2", "--concurrency", "2", "--requests", "4", "--baseline", "replicas", "--request", "0+2"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* text : {"Under load", "2 at a time", "with exchange", "replicas", "P99"}) {
    EXPECT_THAT(result.out, HasSubstr(text));
  }
}

TEST(BenchLoad, WhatCannotBeServedIsRefused) {
  const auto refused = [](std::vector<std::string> more, const char* why) {
    const CommandResult result = run_command(small(std::move(more)));
    EXPECT_EQ(result.exit_code, 2) << result.out;
    EXPECT_THAT(result.err, HasSubstr(why));
  };
  refused({"--concurrency", "2,0"}, "--concurrency '2,0': expected numbers from 1 to");
  refused({"--concurrency", ""}, "--concurrency ''");
  refused({"--rate", "-3"}, "--rate '-3': expected requests per second");
  refused({"--rate", "inf"}, "--rate 'inf'");
  refused({"--concurrency", "2", "--request", "5"}, "--request '5': expected PROMPT+OUTPUT");
  refused({"--concurrency", "2", "--request", "0+0"}, "--request '0+0'");
  refused({"--concurrency", "2", "--request", "25+1"}, "a request of 25 tokens at once does not fit");
  refused({"--requests", "5"}, "add --concurrency or --rate");
  refused({"--concurrency", "2", "--requests", "0"}, "--requests 0");
  refused({"--concurrency", "2", "--backward"}, "no backward pass");
  refused({"--concurrency", "2", "--tokens", "5,0"}, "does not fit into a batch of --tokens 0");
}

}  // namespace
}  // namespace moetax::testing
