// moetax calibrate: every link there is, measured, fitted and written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/command.h"

namespace moetax::testing {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Calibrate, MeasuresTheLinksThereAre) {
  const CommandResult result = run_command({"calibrate", "--ranks", "4", "--nodes", "2", "--out", "-"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json machine = json::parse(result.out, nullptr, false);
  ASSERT_FALSE(machine.is_discarded()) << result.out;
  EXPECT_EQ(machine.at("schema"), "moetax.machine/1");
  EXPECT_EQ(machine.at("ranks"), 4);
  EXPECT_EQ(machine.at("nodes"), 2);
  std::vector<std::string> classes;
  for (const json& link : machine.at("links")) {
    classes.push_back(link.at("class"));
    EXPECT_EQ(link.at("pieces").front().at("from_bytes"), 0.0);
    EXPECT_LE(link.at("mean_error"), link.at("worst_error"));
    double before = 0;
    for (const json& sample : link.at("samples")) {
      EXPECT_GT(sample.at("us"), 0);
      EXPECT_GT(sample.at("bytes"), before);
      before = sample.at("bytes");
    }
  }
  EXPECT_THAT(classes, ElementsAre("copy", "sum", "memory", "memory-shared", "link", "link-shared", "link-stream",
                                   "link-direct", "link-relay", "link-two-level"));
  EXPECT_GT(machine.at("calls").at("dispatch_us"), 0);
  EXPECT_GT(machine.at("calls").at("combine_us"), 0);
}

TEST(Calibrate, OneNodeHasNoLinks) {
  const CommandResult result = run_command({"calibrate", "--out", "-"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json machine = json::parse(result.out, nullptr, false);
  std::vector<std::string> classes;
  for (const json& link : machine.at("links")) classes.push_back(link.at("class"));
  EXPECT_THAT(classes, ElementsAre("copy", "sum", "memory", "memory-shared"));
}

TEST(Calibrate, NodesMayDifferInTheirRanks) {
  const CommandResult result = run_command({"calibrate", "--ranks", "5", "--nodes", "3", "--out", "-"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(json::parse(result.out).at("links").size(), 10u);
}

TEST(Calibrate, RefusesWhatMakesNoSense) {
  for (const auto& [arguments, text] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--ranks", "1"}, "--ranks 1: expected 2 to 256"},
           {{"--ranks", "4", "--nodes", "5"}, "--nodes 5"},
           {{"--deadline", "0"}, "--deadline 0"},
           {{"--out", "/nowhere/machine.json"}, "/nowhere/machine.json"},
           {{"--speed", "1"}, "moetax calibrate --help"}}) {
    std::vector<std::string> all{"calibrate"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const CommandResult result = run_command(all);
    EXPECT_EQ(result.exit_code, 2) << text;
    EXPECT_THAT(result.err, HasSubstr(text));
  }
}

}  // namespace
}  // namespace moetax::testing
