#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "moetax/report/bill.h"
#include "report/sample_ledgers.h"

namespace moetax {
namespace {

TEST(Json, SaysWhatTheBillSays) {
  const Bill bill = sample::planted_bill();
  const auto json = nlohmann::json::parse(to_json(bill));
  EXPECT_EQ(json["schema"], "moetax.bill/1");
  EXPECT_EQ(json["ranks"][0]["waited_for"][0]["rank"], 1);
  EXPECT_EQ(json["ranks"][0]["waited_for"][0]["us"], 5000.0);
  EXPECT_EQ(json["ranks"][0]["waited_for"][0]["cause"], "planted-delay");
  EXPECT_EQ(json["tax"]["wait_us"], 2500.0);
  EXPECT_EQ(json["exchanges"][0]["roof_gbs"], nullptr);
  EXPECT_EQ(json["output_hash"], bill.output_hash);
  EXPECT_EQ(json["findings"][0]["id"], "wait-planted-delay");
  EXPECT_EQ(json["config"]["ep_size"], 2);
  EXPECT_EQ(json["config"]["recompute"], false);
  EXPECT_EQ(json["config"]["delays"], nlohmann::json::parse(R"([{"rank": 1, "ms": 5.0}])"));
  EXPECT_EQ(json["config"]["deadline_s"], 30.0);
  double sum = json["compute_us"].get<double>() + json["other_us"].get<double>() + json["tax"]["us"].get<double>();
  EXPECT_NEAR(sum, json["step_us"]["mean"].get<double>(), 0.01);
}

TEST(Json, UnknownPartsAreNullAndBadTextIsRepaired) {
  Bill bill = sample::planted_bill();
  bill.tax.wait_us.reset();
  bill.ranks[0].wire_us.reset();
  bill.ranks[0].expert_rows.reset();
  bill.routing.rank_max_over_mean.reset();
  bill.config.ep_size.reset();
  bill.config.deadline_s.reset();
  bill.machine.cpu = "bad \xff utf-8";
  bill.step_us.std = std::nan("");
  const auto json = nlohmann::json::parse(to_json(bill));
  EXPECT_EQ(json["tax"]["wait_us"], nullptr);
  EXPECT_EQ(json["ranks"][0]["wire_us"], nullptr);
  EXPECT_EQ(json["routing"]["rank_max_over_mean"], nullptr);
  EXPECT_EQ(json["step_us"]["std"], nullptr);
  EXPECT_EQ(json["config"]["ep_size"], nullptr);
  EXPECT_EQ(json["config"]["deadline_s"], nullptr);
  const std::string text = to_text(bill);
  EXPECT_EQ(text.find("nan"), std::string::npos);
  EXPECT_NE(text.find("  wait             ?"), std::string::npos) << text;
}

}  // namespace
}  // namespace moetax
