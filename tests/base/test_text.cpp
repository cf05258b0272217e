#include "moetax/base/text.h"

#include <gtest/gtest.h>

#include <vector>

namespace moetax {
namespace {

TEST(Text, SplitterGivesEveryPart) {
  const auto parts = [](std::string_view text) {
    std::vector<std::string_view> all;
    Splitter splitter(text, ',');
    while (const auto part = splitter.next()) all.push_back(*part);
    return all;
  };
  using Parts = std::vector<std::string_view>;
  EXPECT_EQ(parts(""), Parts{""});
  EXPECT_EQ(parts("a"), Parts{"a"});
  EXPECT_EQ(parts("a,,b,"), (Parts{"a", "", "b", ""}));
}

TEST(Text, NumbersAreAllOfTheTextAndInRange) {
  EXPECT_EQ(parse_number<int>(" 42\t"), 42);
  EXPECT_EQ(parse_number<int>("-7"), -7);
  EXPECT_EQ(parse_number<double>("2.5e3"), 2500.0);
  for (const char* text : {"", " ", "4 2", "0x10", "+1", "1,", "2147483648", "1e3"}) {
    EXPECT_FALSE(parse_number<int>(text)) << text;
  }
  EXPECT_FALSE(parse_number<double>("1e999"));
}

TEST(Text, QuotesArePrintableAndShort) {
  EXPECT_EQ(in_quotes("tax>5%"), "'tax>5%'");
  EXPECT_EQ(in_quotes("a\nb\xff"), "'a?b?'");
  EXPECT_EQ(in_quotes(std::string(100, 'x')), "'" + std::string(40, 'x') + "...'");
}

}  // namespace
}  // namespace moetax
