#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "moetax/report/bill.h"
#include "report/sample_ledgers.h"

namespace moetax {
namespace {

using Json = nlohmann::json;

std::vector<RankLedger> delayed_ledgers() {
  auto plans = sample::even_plans(2);
  plans[1].planted_ns = 5000 * sample::kUs;
  plans[1].clock_offset_ns = 3000 * sample::kUs;
  return sample::Simulation(plans).run(2);
}

TEST(ChromeTimeline, OneNamedProcessPerRankWithAlignedClocks) {
  const Json trace = Json::parse(to_chrome_trace(delayed_ledgers()));
  std::set<std::string> processes;
  std::map<int, double> step_start;
  int waits = 0;
  for (const Json& event : trace["traceEvents"]) {
    if (event["name"] == "process_name") processes.insert(event["args"]["name"].get<std::string>());
    if (event["name"] == "step 0") step_start[event["pid"].get<int>()] = event["ts"].get<double>();
    if (event["name"] != "wait for rank 1") continue;
    ++waits;
    EXPECT_EQ(event["pid"], 0);
    EXPECT_DOUBLE_EQ(event["dur"].get<double>(), 5000);
    EXPECT_EQ(event["args"]["peer"], 1);
  }
  EXPECT_EQ(processes, (std::set<std::string>{"rank 0 (node 0)", "rank 1 (node 0)"}));
  EXPECT_EQ(waits, 2);
  EXPECT_DOUBLE_EQ(step_start[0], 0);
  EXPECT_DOUBLE_EQ(step_start[1], 0);  // its clock is 3 ms behind
}

// Slices of one track nest, arrows start in an exchange of the peer and end in the wait.
TEST(ChromeTimeline, SlicesNestAndArrowsPair) {
  const Json trace = Json::parse(to_chrome_trace(delayed_ledgers()));
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> open;
  std::map<int, Json> started;
  std::size_t finished = 0;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] == "s") started[event["id"].get<int>()] = event;
    if (event["ph"] == "f") {
      ++finished;
      EXPECT_LE(started.at(event["id"].get<int>())["ts"].get<double>(), event["ts"].get<double>());
    }
    if (event["ph"] != "X") continue;
    open[{event["pid"].get<int>(), event["tid"].get<int>()}].emplace_back(event["ts"].get<double>(),
                                                                          event["dur"].get<double>());
  }
  EXPECT_EQ(started.size(), 2u);
  EXPECT_EQ(finished, started.size());
  for (auto& [track, slices] : open) {
    for (const auto& [a, a_dur] : slices) {
      for (const auto& [b, b_dur] : slices) {
        const bool crossing = a < b - 1e-6 && b < a + a_dur - 1e-6 && a + a_dur < b + b_dur - 1e-6;
        EXPECT_FALSE(crossing) << a << " " << b;
      }
    }
  }
}

TEST(ChromeTimeline, EndsWhereTheKeptSpansEnd) {
  auto ledgers = delayed_ledgers();
  ledgers[0].spans.resize(2);
  ledgers[0].spans_dropped = 5;
  const Json trace = Json::parse(to_chrome_trace(ledgers));
  for (const Json& event : trace["traceEvents"]) {
    if (event["pid"] != 0 || event["ph"] != "X") continue;
    EXPECT_NE(event["name"], "step 1");
  }
}

TEST(ChromeTimeline, EmptyIsValid) {
  EXPECT_TRUE(Json::parse(to_chrome_trace({}))["traceEvents"].empty());
  EXPECT_FALSE(Json::parse(to_chrome_trace({RankLedger{}}))["traceEvents"].empty());
}

}  // namespace
}  // namespace moetax
