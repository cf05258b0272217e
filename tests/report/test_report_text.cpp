// Golden texts: tests/report/golden/<name>.txt. To renew them after a change on purpose, run this program with
// MOETAX_UPDATE_GOLDEN=1 in the environment and look at the difference before committing it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>

#include "moetax/report/bill.h"
#include "report/format.h"
#include "report/sample_ledgers.h"

namespace moetax {
namespace {

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void expect_fits(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), report::kColumns) << line;
    EXPECT_FALSE(!line.empty() && line.back() == ' ') << "trailing blank: " << line;
  }
}

void expect_golden(const std::string& name, const Bill& bill) {
  const std::string text = to_text(bill);
  expect_fits(text);
  const std::string path = std::string(MOETAX_SOURCE_DIR "/tests/report/golden/") + name + ".txt";
  if (std::getenv("MOETAX_UPDATE_GOLDEN")) {
    ASSERT_TRUE(write_text(path, text)) << path;
    return;
  }
  EXPECT_EQ(text, read_file(path)) << "differs from " << path << "; MOETAX_UPDATE_GOLDEN=1 renews it";
}

TEST(Golden, PlantedDelay) {
  expect_golden("planted_delay", sample::planted_bill());
}
TEST(Golden, HotExperts) {
  expect_golden("hot_experts", sample::hot_bill());
}
TEST(Golden, SixtyFourRanks) {
  expect_golden("sixty_four_ranks", sample::wide_bill());
}
TEST(Golden, Wire) {
  expect_golden("wire", sample::wire_bill());
}
TEST(Golden, OneRank) {
  expect_golden("one_rank", sample::one_rank_bill());
}
TEST(Golden, NoSteps) {
  expect_golden("no_steps", sample::no_steps_bill());
}

TEST(Text, SaysWhatTheRunWasAskedFor) {
  Bill bill = sample::planted_bill();
  bill.config.ranks = 8;
  bill.config.ep_size = 4;
  bill.config.backward = bill.config.recompute = true;
  const std::string text = to_text(bill);
  EXPECT_THAT(text, testing::HasSubstr("2 replicas of the experts"));
  EXPECT_THAT(text, testing::HasSubstr("1 layer with backward, activations recomputed"));
}

TEST(Text, LongNamesStayWithin100Columns) {
  Bill bill = sample::hot_bill();
  bill.machine.cpu = std::string(250, 'x');
  bill.config.model = std::string(120, 'm') + " " + std::string(90, 'n');
  bill.exchanges[0].name = std::string(80, 'd');
  bill.output_hash = std::string(200, 'h');
  bill.ranks[0].step_us = 1e15;
  expect_fits(to_text(bill));
}

TEST(Format, ThreeDigitsAndUnits) {
  using namespace report;  // NOLINT(google-build-using-namespace)
  EXPECT_EQ(digits3(0), "0");
  EXPECT_EQ(digits3(0.5), "0.50");
  EXPECT_EQ(digits3(9.996), "10.0");
  EXPECT_EQ(digits3(99.96), "100");
  EXPECT_EQ(digits3(std::nan("")), "-");
  EXPECT_EQ(digits3(std::numeric_limits<double>::infinity()), "-");
  EXPECT_EQ(time_text(0.31), "0.31 us");
  EXPECT_EQ(time_text(412), "412 us");
  EXPECT_EQ(time_text(999.6), "1.00 ms");
  EXPECT_EQ(time_text(21400), "21.4 ms");
  EXPECT_EQ(time_text(1.5e6), "1.50 s");
  EXPECT_EQ(bytes_text(512), "512 B");
  EXPECT_EQ(bytes_text(1536), "1.50 KiB");
  EXPECT_EQ(bytes_text(1048575.9), "1.00 MiB");
  EXPECT_EQ(bytes_text(3.0 * (1 << 30)), "3.00 GiB");
  EXPECT_EQ(percent_text(0.123), "12.3 %");
  EXPECT_EQ(count_text(812), "812");
  EXPECT_EQ(count_text(191234), "191 k");
  EXPECT_EQ(bar(0, 40), "");
  EXPECT_EQ(bar(0.004, 40), "#");
  EXPECT_EQ(bar(2, 4), "####");
}

TEST(Format, WrapKeepsWordsAndIndent) {
  const std::string text = "  start " + std::string(60, 'a') + " " + std::string(60, 'b') + " end";
  EXPECT_EQ(report::wrap(text, 4), "  start " + std::string(60, 'a') + "\n    " + std::string(60, 'b') + " end\n");
  EXPECT_EQ(report::wrap("", 4), "\n");
  EXPECT_EQ(report::wrap(std::string(250, 'c'), 2),
            std::string(100, 'c') + "\n  " + std::string(98, 'c') + "\n  " + std::string(52, 'c') + "\n");
}

TEST(WriteText, SaysWhyAFileCannotBeWritten) {
  const auto result = write_text("/nonexistent-folder/bill.json", "x");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kUsage);
  EXPECT_THAT(result.error().message, testing::HasSubstr("/nonexistent-folder/bill.json"));
  const std::string path = testing::TempDir() + "moetax_write_text.txt";
  ASSERT_TRUE(write_text(path, "bill\n"));
  EXPECT_EQ(read_file(path), "bill\n");
  std::remove(path.c_str());
}

}  // namespace
}  // namespace moetax
