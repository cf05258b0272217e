// What is said of two bills, on ones that are made up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "moetax/report/bill.h"
#include "moetax/report/compare.h"
#include "report/sample_ledgers.h"
#include "report/sample_traces.h"

namespace moetax::test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

ComparedBill parsed(const Bill& bill, const char* name) {
  auto compared = parse_compared(to_json(bill), name);
  EXPECT_TRUE(compared) << compared.error().message;
  return compared ? std::move(*compared) : ComparedBill{};
}

// Two ranks; `late` is waited for 10 ms by the other, rows take 5 ms.
ComparedBill made(Rank late, double wait_us = 10'000, double transfer_us = 5'000) {
  ComparedBill bill;
  bill.step_us = 100'000;
  bill.step_std_us = 100;
  bill.steps = 10;
  bill.compute_us = 80'000;
  bill.exposed_us = wait_us / 2 + transfer_us;
  bill.wait_us = wait_us / 2;
  bill.wire_us = transfer_us;
  for (const Rank rank : {0, 1}) {
    bill.ranks.push_back(
        {rank, 100'000, 80'000, bill.exposed_us, rank == late ? 0 : wait_us, rank == late ? wait_us : 0});
  }
  bill.exchanges.push_back({"dispatch (forward)", 10, wait_us / 2 + transfer_us, wait_us / 2, transfer_us});
  return bill;
}

TEST(Compare, TheSameBillTwiceChangesNothing) {
  const Bill bill = sample::planted_bill();
  const Comparison same = compare(parsed(bill, "a"), parsed(bill, "b"));
  EXPECT_TRUE(same.noise);
  EXPECT_THAT(same.warnings, IsEmpty());
  EXPECT_THAT(same.sentences, Contains(HasSubstr("exposed communication did not change")));
  EXPECT_THAT(same.sentences, Not(Contains(HasSubstr("flipped"))));
  EXPECT_THAT(to_text(same), HasSubstr("that is noise"));
}

TEST(Compare, AStragglerThatFlipsIsNamed) {
  const Comparison c = compare(made(1), made(0));
  EXPECT_THAT(c.sentences,
              Contains("the straggler flipped: rank 1 was waited for most (10.0 ms), now rank 0 (10.0 ms)"));
  EXPECT_THAT(c.sentences, Contains("waiting moved from rank 0 (10.0 ms) to rank 1 (10.0 ms)"));
}

TEST(Compare, WaitingAndTransferAreToldApart) {
  EXPECT_THAT(compare(made(1), made(1, 20'000)).sentences,
              Contains("dispatch (forward): transfer did not change (5.00 ms -> 5.00 ms (+0.0 %) a call); waiting did: "
                       "5.00 ms -> 10.0 ms (+100.0 %)"));
  EXPECT_THAT(
      compare(made(1), made(1, 10'000, 8'000)).sentences,
      Contains("dispatch (forward): transfer takes longer (5.00 ms -> 8.00 ms (+60.0 %) a call), waiting did not "
               "change"));
}

TEST(Compare, NoiseIsWhatStepsDifferBy) {
  ComparedBill slower = made(1);
  slower.step_us += 60;  // of steps that differ by 100: 2 * sqrt(2 * 100^2 / 10) = 89
  EXPECT_TRUE(compare(made(1), slower).noise);
  slower.step_us += 60;
  const Comparison sure = compare(made(1), slower);
  EXPECT_FALSE(sure.noise);
  EXPECT_THAT(sure.sentences[0], HasSubstr("more than the 89.4 us that steps' differences explain"));
}

TEST(Compare, WhatDiffersBesideTheTimesIsWarnedOf) {
  Bill bill = sample::planted_bill(), other = bill;
  other.machine.cpu = "another\ncpu";
  other.config.exchange = "two-level";
  const Comparison c = compare(parsed(bill, "a"), parsed(other, "b"));
  ASSERT_EQ(c.warnings.size(), 2u);
  EXPECT_THAT(c.warnings[0], HasSubstr("the machine differs: cpu was"));
  EXPECT_EQ(c.warnings[0].find('\n'), std::string::npos);
  EXPECT_THAT(c.warnings[1], HasSubstr("the job differs: exchange was"));
  const Comparison mixed = compare(parsed(bill, "a"), parsed(sample::trace_bill(2), "t"));
  EXPECT_THAT(mixed.warnings[0], HasSubstr("the other one of traces"));
}

TEST(Compare, ExchangesThatComeAndGoAreTold) {
  ComparedBill other = made(1);
  other.exchanges[0].name = "combine (forward)";
  const Comparison c = compare(made(1), other);
  EXPECT_THAT(c.sentences, Contains("dispatch (forward) is gone"));
  EXPECT_THAT(c.sentences, Contains(HasSubstr("combine (forward) is new")));
}

TEST(Compare, BillsWithoutStepsPrintNoNaN) {
  const Comparison c = compare(parsed(sample::no_steps_bill(), "a"), parsed(sample::planted_bill(), "b"));
  for (const std::string& text : {to_text(c), to_json(c), to_text(compare({}, {}))}) {
    EXPECT_EQ(text.find("nan"), std::string::npos);
    EXPECT_EQ(text.find("inf"), std::string::npos);
  }
}

TEST(Compare, WhatIsNoBillIsRefused) {
  const auto error = [](std::string_view text) {
    const auto compared = parse_compared(text, "x.json");
    return compared ? std::string("parsed") : compared.error().message;
  };
  EXPECT_THAT(error("[1"), HasSubstr("x.json: not a bill"));
  EXPECT_THAT(error(R"({"schema": "moetax.bill/2"})"), HasSubstr("not a bill (moetax.bill/1)"));
  EXPECT_THAT(error(R"({"schema": "moetax.bill/1"})"), HasSubstr("x.json: config: expected an object"));
  std::string text = to_json(sample::planted_bill());
  const std::size_t at = text.find("\"compute_us\": ") + 14;
  text.replace(at, text.find_first_of(",\n", at) - at, "\"many\"");
  EXPECT_THAT(error(text), HasSubstr("x.json: compute_us: expected a number"));
}

}  // namespace
}  // namespace moetax::test
