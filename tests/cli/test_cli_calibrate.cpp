// moetax calibrate: every link there is, measured, fitted and written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "cli/command.h"

namespace moetax::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

TEST(Calibrate, MeasuresTheLinksThereAre) {
  const CommandResult result = run_command({"calibrate", "--ranks", "4", "--nodes", "2", "--out", "-"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json machine = json::parse(result.out, nullptr, false);
  ASSERT_FALSE(machine.is_discarded()) << result.out;
  EXPECT_EQ(machine.at("schema"), "moetax.machine/1");
  ASSERT_EQ(machine.at("links").size(), 3u);
  const char* classes[] = {"memory", "link", "link-shared"};
  for (std::size_t i = 0; i < 3; ++i) {
    const json& link = machine.at("links")[i];
    EXPECT_EQ(link.at("class"), classes[i]);
    EXPECT_EQ(link.at("samples").front().at("bytes"), 16.0);
    EXPECT_EQ(link.at("samples").back().at("bytes"), 16.0 * (1 << 20));
    EXPECT_EQ(link.at("pieces").front().at("from_bytes"), 0.0);
    EXPECT_LE(link.at("mean_error"), link.at("worst_error"));
    for (const json& sample : link.at("samples")) EXPECT_GT(sample.at("us"), 0);
  }
}

TEST(Calibrate, OneNodeHasMemoryOnly) {
  const CommandResult result = run_command({"calibrate", "--out", "-"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json machine = json::parse(result.out, nullptr, false);
  ASSERT_EQ(machine.at("links").size(), 1u);
  EXPECT_EQ(machine.at("links")[0].at("class"), "memory");
}

TEST(Calibrate, IsRefusedUnderALauncher) {
  setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  setenv("OMPI_COMM_WORLD_RANK", "0", 1);
  const CommandResult result = run_command({"calibrate"});
  unsetenv("OMPI_COMM_WORLD_SIZE");
  unsetenv("OMPI_COMM_WORLD_RANK");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("run it without a launcher"));
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
