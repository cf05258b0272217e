// machine.json: what is written is read again, and what is not so is named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cost/synthetic.h"

namespace moetax::test {
namespace {

using ::testing::HasSubstr;

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  const std::size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), with);
}

TEST(MachineCosts, ComeBackAsTheyWere) {
  const MachineCosts machine = synthetic_machine(8, 2);
  const std::string text = to_json(machine);
  const auto again = parse_machine_costs(text, "machine.json");
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(to_json(*again), text);
  EXPECT_EQ(again->ranks, 8);
  EXPECT_EQ(again->calls.combine_us, 25);
  for (int i = 0; i < kNumLinkClasses; ++i) {
    const auto link = static_cast<LinkClass>(i);
    ASSERT_TRUE(again->find(link));
    EXPECT_DOUBLE_EQ(again->find(link)->time_us(12345), machine.find(link)->time_us(12345));
  }
}

TEST(MachineCosts, NamesWhatIsWrong) {
  const std::string good = to_json(synthetic_machine(4, 2));
  const auto error = [&](const std::string& text) {
    const auto parsed = parse_machine_costs(text, "m.json");
    if (parsed) return std::string("parsed");
    EXPECT_EQ(parsed.error().code, ErrorCode::kBadInput);
    return parsed.error().message;
  };
  EXPECT_EQ(error("{"), "m.json: not a JSON object; expected what moetax calibrate writes");
  EXPECT_THAT(error("{\"schema\": \"moetax.bill/1\"}"), HasSubstr("'moetax.bill/1', expected 'moetax.machine/1'"));
  EXPECT_EQ(error(replaced(good, "\"ranks\": 4", "\"ranks\": 1")),
            "m.json: ranks: expected a whole number from 2 to 1048576");
  EXPECT_EQ(error(replaced(good, "\"nodes\": 2", "\"nodes\": 5")), "m.json: nodes: there are more than ranks");
  EXPECT_THAT(error(replaced(good, "\"class\": \"copy\"", "\"class\": \"wormhole\"")),
              HasSubstr("m.json: links[0].class: 'wormhole' is none of copy, sum, memory"));
  EXPECT_EQ(error(replaced(good, "\"from_bytes\": 0.0", "\"from_bytes\": 7.0")),
            "m.json: links[0].pieces[0].from_bytes: pieces begin at 0 and ascend");
  EXPECT_EQ(error(replaced(good, "\"combine_us\": 25.0", "\"combine_us\": -1")),
            "m.json: calls.combine_us: expected a number of at least 0");
  EXPECT_THAT(error(replaced(good, "\"us\": ", "\"us\": 1e400, \"was\": ")), HasSubstr("m.json"));
  EXPECT_THAT(read_machine_costs("/nowhere/m.json").error().message, HasSubstr("/nowhere/m.json"));
}

}  // namespace
}  // namespace moetax::test
