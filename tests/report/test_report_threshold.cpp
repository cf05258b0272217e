#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "moetax/report/threshold.h"
#include "report/sample_ledgers.h"

namespace moetax {
namespace {

using testing::HasSubstr;

TEST(Threshold, Parses) {
  const auto tax = parse_threshold("tax>25%");
  ASSERT_TRUE(tax);
  EXPECT_EQ(tax->metric, Metric::kTax);
  EXPECT_EQ(tax->comparison, Comparison::kGreater);
  EXPECT_DOUBLE_EQ(tax->value, 25);
  const auto wait = parse_threshold(" wait >= 2.5 % ");
  ASSERT_TRUE(wait);
  EXPECT_EQ(wait->metric, Metric::kWait);
  EXPECT_EQ(wait->comparison, Comparison::kGreaterEqual);
  EXPECT_DOUBLE_EQ(wait->value, 2.5);
  const auto step = parse_threshold("step_us<=2e4");
  ASSERT_TRUE(step);
  EXPECT_EQ(step->metric, Metric::kStepUs);
  EXPECT_EQ(step->comparison, Comparison::kLessEqual);
  EXPECT_DOUBLE_EQ(step->value, 20000);
}

TEST(Threshold, SaysWhatIsWrongWithAnExample) {
  const std::vector<std::pair<const char*, const char*>> cases{
      {"", "no < or >"},         {"tax", "no < or >"},      {"tax=25%", "no < or >"},
      {"tx>25%", "no metric"},   {">25%", "no metric"},     {"tax>25", "end it with %"},
      {"tax>%", "not a number"}, {"tax>", "end it with %"}, {"step_us>5%", "microseconds"},
      {"wait>nan%", "number"},   {"wait>inf%", "number"},   {"wait>-3%", "number"},
      {"wait>3x%", "number"},    {"tax>>3%", "number"},     {"step_us>0x10", "number"}};
  for (const auto& [text, expected] : cases) {
    const auto parsed = parse_threshold(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code, ErrorCode::kUsage);
    EXPECT_THAT(parsed.error().message, HasSubstr(expected)) << text;
    EXPECT_THAT(parsed.error().message, HasSubstr("tax>25%")) << text;
  }
}

ThresholdOutcome outcome(const Bill& bill, const char* text) {
  const auto checked = check_threshold(bill, *parse_threshold(text));
  EXPECT_TRUE(checked) << text;
  return checked ? *checked : ThresholdOutcome{};
}

TEST(Threshold, ComparesWithTheBill) {
  const Bill bill = sample::planted_bill();  // step 7240 us, wait 2500, tax 2630
  EXPECT_TRUE(outcome(bill, "tax>36%").crossed);
  EXPECT_FALSE(outcome(bill, "tax>37%").crossed);
  EXPECT_TRUE(outcome(bill, "wait>34%").crossed);
  EXPECT_FALSE(outcome(bill, "wire>2%").crossed);
  EXPECT_TRUE(outcome(bill, "pack<1%").crossed);
  EXPECT_TRUE(outcome(bill, "launch<=1%").crossed);
  EXPECT_FALSE(outcome(bill, "step_us>7240").crossed);
  EXPECT_TRUE(outcome(bill, "step_us>=7240").crossed);
  EXPECT_EQ(outcome(bill, "tax>25%").text, "tax is 36.3 %, over the limit tax>25%");
  EXPECT_EQ(outcome(bill, "step_us>20000").text, "step_us is 7.24 ms, within the limit step_us>20000");
  EXPECT_EQ(outcome(bill, "step_us<20000").text, "step_us is 7.24 ms, under the limit step_us<20000");
  EXPECT_EQ(outcome(bill, "step_us<5000").text, "step_us is 7.24 ms, within the limit step_us<5000");
  EXPECT_EQ(outcome(bill, "step_us>=7240").text, "step_us is 7.24 ms, at or over the limit step_us>=7240");
  EXPECT_EQ(outcome(bill, "step_us<=7240").text, "step_us is 7.24 ms, at or under the limit step_us<=7240");
}

TEST(Threshold, NothingMeasuredOrUnknownIsAnErrorNotAPass) {
  const auto none = check_threshold(sample::no_steps_bill(), *parse_threshold("tax>25%"));
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kUnavailable);
  Bill bill = sample::planted_bill();
  bill.tax.wait_us.reset();
  EXPECT_FALSE(check_threshold(bill, *parse_threshold("wait>1%")));
}

}  // namespace
}  // namespace moetax
