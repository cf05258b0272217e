#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "moetax/trace/chrome_trace.h"

namespace moetax {
namespace {

using Json = nlohmann::json;

TEST(ChromeTrace, TimesKeepTheirNanosecondsFarFromTheOrigin) {
  const std::int64_t origin = 9'000'000'000'000'000'001;  // more digits than a double holds
  ChromeTrace trace(origin);
  trace.slice({"a", "c", 1, 2, origin + 1'234'567, origin + 1'234'570, {}});
  trace.slice({"b", "c", 1, 2, origin - 5, origin, {}});
  const std::string text = std::move(trace).finish();
  EXPECT_NE(text.find("\"ts\":1234.567,\"dur\":0.003"), std::string::npos) << text;
  EXPECT_NE(text.find("\"ts\":-0.005,\"dur\":0.005"), std::string::npos) << text;
  EXPECT_EQ(Json::parse(text)["traceEvents"].size(), 2u);
}

TEST(ChromeTrace, NamesAndArgsSurviveAnyText) {
  ChromeTrace trace(0);
  trace.name_process(3, "rank \"3\"\n");
  trace.name_track(3, 1, "tab\t");
  trace.slice({"quote \" and \xff", "c", 3, 1, 0, 10, {{"peer", std::int64_t{7}}, {"why", std::string("a\\b")}}});
  const Json events = Json::parse(std::move(trace).finish())["traceEvents"];
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[0]["args"]["name"], "rank \"3\"\n");
  EXPECT_EQ(events[1]["args"]["sort_index"], 3);
  EXPECT_EQ(events[2]["name"], "thread_name");
  EXPECT_EQ(events[4]["args"]["peer"], 7);
  EXPECT_EQ(events[4]["args"]["why"], "a\\b");
}

TEST(ChromeTrace, ArrowsHaveTheirOwnIds) {
  ChromeTrace trace(0);
  trace.arrow("x", {0, 1, 100}, {1, 2, 200});
  trace.arrow("x", {0, 1, 300}, {1, 2, 400});
  const Json events = Json::parse(std::move(trace).finish())["traceEvents"];
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0]["ph"], "s");
  EXPECT_EQ(events[1]["ph"], "f");
  EXPECT_EQ(events[0]["id"], events[1]["id"]);
  EXPECT_NE(events[0]["id"], events[2]["id"]);
}

TEST(ChromeTrace, EmptyIsValid) {
  EXPECT_TRUE(Json::parse(ChromeTrace(0).finish())["traceEvents"].empty());
}

}  // namespace
}  // namespace moetax
