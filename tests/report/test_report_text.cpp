// Golden texts: tests/report/golden/<name>.txt. To renew them after a change on purpose, run this program with
// MOETAX_UPDATE_GOLDEN=1 in the environment and look at the difference before committing it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <limits>
#include <sstream>

#include "moetax/base/random.h"
#include "moetax/report/bill.h"
#include "report/format.h"
#include "report/sample_ledgers.h"
#include "report/sample_traces.h"
#include "report/table.h"

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
TEST(Golden, Traces) {
  expect_golden("traces", sample::trace_bill(2));
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

// Numbers of every size in every place, also those no run will ever see.
void set_to(const std::function<double()>& value, Bill& bill) {
  const auto count = [&] { return static_cast<std::int64_t>(std::min(value(), 9e18)); };
  for (double* number : {&bill.step_us.mean, &bill.step_us.std, &bill.step_us.p99, &bill.comm_us, &bill.exposed_us,
                         &bill.compute_us, &bill.tax.us, &bill.routing.expert_max_over_mean}) {
    *number = value();
  }
  bill.gflops = value();
  for (BillRank& rank : bill.ranks) {
    rank.rank = static_cast<Rank>(std::min(value(), 2e9));
    rank.step_us = value(), rank.compute_us = value(), rank.other_us = value();
    rank.pack_us = value(), rank.wire_us = value(), rank.wait_us = value(), rank.launch_us = value();
    rank.expert_rows = value();
    for (BillWaitedFor& waited : rank.waited_for) {
      waited.rank = static_cast<Rank>(std::min(value(), 2e9));
      waited.us = value();
    }
  }
  for (BillExchange& x : bill.exchanges) {
    x.calls = count(), x.logical_bytes = count(), x.physical_bytes = count();
    x.us = value(), x.std_us = value(), x.wait_us = value(), x.transfer_us = value(), x.gbs = value();
  }
  for (auto& layer : bill.routing.expert_tokens) std::generate(layer.begin(), layer.end(), count);
  for (BillFinding& finding : bill.findings) finding.gain_us_estimate = value();
  bill.weight_bytes = count(), bill.rows_reserved_bytes = count(), bill.rows_touched_bytes = count();
  bill.routing.dropped_tokens = count(), bill.routing.experts_never_chosen = count();
}

TEST(Text, EveryTableFits100ColumnsWithHugeNumbers) {
  for (Bill bill : {sample::hot_bill(), sample::wide_bill()}) {
    bill.exchanges[0].name = "reduce (router, shared)";
    bill.exchanges[1].phase = "backward";
    for (const double huge : {999.4, 99'949.0, 1e6, 1e9, 9.99e12, 1e18, 1e300}) {
      set_to([=] { return huge; }, bill);
      expect_fits(to_text(bill));
    }
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
      const RandomStream random(seed, 0);
      std::uint64_t i = 0;
      set_to([&] { return std::pow(10.0, static_cast<double>(random.bits(i++) % 2100) / 100 - 2); }, bill);
      expect_fits(to_text(bill));
    }
  }
}

TEST(Text, ReductionsOfAMillionCallsKeepTheirNames) {
  Bill bill = sample::hot_bill();
  bill.exchanges[0].name = "reduce (router, shared)";
  bill.exchanges[1].name = "reduce (experts)";
  for (BillExchange& x : bill.exchanges) {
    x.phase = "backward";
    x.calls = 1'000'000;
    x.us = x.std_us = 99.94e3;
    x.wait_us = x.transfer_us = 99.94e3;
    x.logical_bytes = x.physical_bytes = std::int64_t{1023} << 20;
    x.gbs = 13.9;
  }
  const std::string text = to_text(bill);
  expect_fits(text);
  EXPECT_THAT(text, testing::HasSubstr("  reduce (router, shared) backward 1.00 M"));
  EXPECT_THAT(text, testing::HasSubstr("  reduce (experts)        backward 1.00 M"));
}

TEST(Table, BlanksGiveWayBeforeTextIsCut) {
  using report::Align;
  report::Table table({{"name", Align::kLeft}, {"count"}});
  table.add({"a", "1"});
  EXPECT_EQ(table.text(), "  name   count\n  a          1\n");
  table.add({std::string(92, 'b'), "2"});
  EXPECT_EQ(table.text(), "  name" + std::string(89, ' ') + "count\n  a" + std::string(96, ' ') + "1\n  " +
                              std::string(92, 'b') + "     2\n");
  table.add({std::string(99, 'c'), "3"});
  EXPECT_THAT(table.text(), testing::HasSubstr("  " + std::string(90, 'c') + "..     3\n"));
}

TEST(Format, ThreeDigitsAndUnits) {
  using namespace report;  // NOLINT(google-build-using-namespace)
  EXPECT_EQ(digits3(0), "0");
  EXPECT_EQ(digits3(0.5), "0.50");
  EXPECT_EQ(digits3(9.996), "10.0");
  EXPECT_EQ(digits3(99.96), "100");
  EXPECT_EQ(digits3(99999), "99999");
  EXPECT_EQ(digits3(123456), "1.23e5");
  EXPECT_EQ(digits3(9.996e12), "1.00e13");
  EXPECT_EQ(digits3(1e300), "1.00e300");
  EXPECT_EQ(digits3(std::nan("")), "-");
  EXPECT_EQ(digits3(std::numeric_limits<double>::infinity()), "-");
  EXPECT_EQ(time_text(0.31), "0.31 us");
  EXPECT_EQ(time_text(412), "412 us");
  EXPECT_EQ(time_text(999.6), "1.00 ms");
  EXPECT_EQ(time_text(21400), "21.4 ms");
  EXPECT_EQ(time_text(1.5e6), "1.50 s");
  EXPECT_EQ(time_text(3000e6), "3000 s");
  EXPECT_EQ(time_text(7200e6), "2.00 h");
  EXPECT_EQ(bytes_text(512), "512 B");
  EXPECT_EQ(bytes_text(1536), "1.50 KiB");
  EXPECT_EQ(bytes_text(1048575.9), "1.00 MiB");
  EXPECT_EQ(bytes_text(3.0 * (1 << 30)), "3.00 GiB");
  EXPECT_EQ(bytes_text(9.2e18), "7.98 EiB");
  EXPECT_EQ(count_text(9.2e18), "9.20 E");
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
