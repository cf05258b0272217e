// moetax compare: bills and traces, side by side.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "cli/command.h"

namespace moetax::testing {
namespace {

using ::testing::HasSubstr;

class Compare : public ::testing::Test {
 protected:
  Compare() { std::filesystem::create_directories(folder_); }
  ~Compare() override { std::filesystem::remove_all(folder_); }
  std::string path(const char* name) const { return (folder_ / name).string(); }
  std::string bill(const char* name, const char* delay) const {
    const CommandResult run =
        run_command({"bench",  "--hidden",  "64",      "--inter", "32",       "--experts", "8",
                     "--topk", "2",         "--ranks", "2",       "--tokens", "8",         "--steps",
                     "5",      "--threads", "1",       "--delay", delay,      "--json",    path(name)});
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return path(name);
  }
  std::string file(const char* name, const char* text) const {
    std::ofstream(path(name)) << text;
    return path(name);
  }

 private:
  std::filesystem::path folder_ =
      std::filesystem::path(::testing::TempDir()) /
      (std::string("compare_") + ::testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(Compare, SaysWhichRankIsLateNow) {
  const CommandResult result = run_command({"compare", bill("a.json", "0:20"), bill("b.json", "1:20")});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("the straggler flipped: rank 0 was waited for most"));
  EXPECT_THAT(result.out, HasSubstr("outputs have the same bits"));
  EXPECT_THAT(result.out, HasSubstr("mean over ranks"));
}

TEST_F(Compare, JsonGoesWhereItIsAsked) {
  const std::string a = bill("a.json", "0:1");
  const CommandResult result = run_command({"compare", a, a, "--json", "-"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("\"schema\": \"moetax.comparison/1\""));
  EXPECT_THAT(result.out, HasSubstr("\"noise\": true"));
}

TEST_F(Compare, WhatCannotBeComparedIsNamed) {
  const std::string a = bill("a.json", "0:1");
  const auto refused = [&](const std::string& other, int code, const char* why) {
    const CommandResult result = run_command({"compare", a, other});
    EXPECT_EQ(result.exit_code, code);
    EXPECT_THAT(result.err, HasSubstr(why));
  };
  refused(path("none.json"), 3, "none.json");
  refused(file("empty.json", ""), 3, "empty.json");
  refused(file("cut.json", R"({"schema": "moetax.bill/1", "conf)"), 3, "not a bill (moetax.bill/1)");
  refused(file("loads.csv", "expert,tokens\n0,5\n1,7\n"), 3, "loads.csv");
  EXPECT_EQ(run_command({"compare", a}).exit_code, 2);
}

TEST_F(Compare, TheStragglerOfARealPairFlips) {
  const char* data = std::getenv("MOETAX_SHARED_DATA");
  if (!data) GTEST_SKIP() << "MOETAX_SHARED_DATA names no folder of real files";
  const std::filesystem::path nsys = std::filesystem::path(data) / "nsys";
  const CommandResult result = run_command(
      {"compare", (nsys / "nsysai_mfu_2gpu_before.sqlite").string(), (nsys / "nsysai_mfu_2gpu_after.sqlite").string()});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out,
              HasSubstr("the straggler flipped: rank 1 was waited for most (11.4 ms), now rank 0 (18.1 ms)"));
  EXPECT_THAT(result.out, HasSubstr("transfer did not change"));
}

}  // namespace
}  // namespace moetax::testing
