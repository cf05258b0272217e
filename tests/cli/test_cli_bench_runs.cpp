// Whole runs: the same bits whatever the ranks, planted truth on the bill, routes from files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "moetax/cost/bytes.h"
#include "shared_data.h"

namespace moetax::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::vector<std::string> small(std::vector<std::string> more) {
  std::vector<std::string> all = {"bench", "--hidden", "64", "--inter",  "48", "--experts",
                                  "16",    "--topk",   "4",  "--shared", "1",  "--steps",
                                  "3",     "--warmup", "1",  "--json",   "-"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

json bill_of(const std::vector<std::string>& arguments) {
  const CommandResult result = run_command(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const json bill = json::parse(result.out, nullptr, false);
  EXPECT_FALSE(bill.is_discarded()) << result.out;
  return bill;
}

TEST(BenchRuns, SameBitsForAnyNumberOfRanks) {
  for (const char* dtype : {"bf16", "fp32"}) {
    std::string first;
    for (const int ranks : {1, 2, 4, 8}) {
      const json bill = bill_of(small({"--dtype", dtype, "--ranks", std::to_string(ranks), "--tokens",
                                       std::to_string(128 / ranks), "--layers", "2"}));
      const std::string hash = bill.at("output_hash");
      if (first.empty()) first = hash;
      EXPECT_EQ(hash, first) << dtype << ", " << ranks << " ranks";
    }
    EXPECT_FALSE(first.empty());
  }
}

TEST(BenchRuns, OverlappedPartsKeepTheBits) {
  const auto run = [](const char* parts) {
    return bill_of(small({"--ranks", "4", "--tokens", "50", "--nodes", "2", "--overlap", parts, "--layers", "2"}));
  };
  const json whole = run("1"), parts = run("3");
  EXPECT_EQ(parts.at("output_hash"), whole.at("output_hash"));
  EXPECT_EQ(whole.at("hidden_us"), 0);
  EXPECT_GT(parts.at("hidden_us"), 0);
  EXPECT_EQ(parts.at("config").at("overlap"), "3 parts");
  EXPECT_EQ(parts.at("exchanges").at(0).at("calls"), 3 * 2 * 3);
  for (const char* bytes : {"logical_bytes", "internode_bytes"}) {
    EXPECT_EQ(parts.at("exchanges").at(1).at(bytes), whole.at("exchanges").at(1).at(bytes)) << bytes;
  }
}

TEST(BenchRuns, SameBitsAcrossNodesButForTwoLevel) {
  const auto run = [](const char* nodes, const char* exchange) {
    return bill_of(small({"--ranks", "4", "--tokens", "50", "--nodes", nodes, "--exchange", exchange, "--backward"}));
  };
  const json one = run("1", "flat");
  for (const char* exchange : {"flat", "direct", "ring", "mesh2d"}) {
    const json bill = run("4", exchange);
    EXPECT_EQ(bill.at("output_hash"), one.at("output_hash")) << exchange;
    EXPECT_EQ(bill.at("config").at("nodes"), 4);
    EXPECT_EQ(bill.at("config").at("exchange"), exchange);
    EXPECT_GT(bill.at("exchanges").at(0).at("internode_bytes"), 0);
  }
  EXPECT_EQ(run("2", "two-level").at("output_hash"), run("2", "two-level").at("output_hash"));
}

// Costs of links that are made up but not absurd: what matters here is that all ranks follow.
TEST(BenchRuns, AnExchangeIsChosenPredictedAndTakenApart) {
  const std::string machine = temporary_path("machine.json");
  ASSERT_EQ(run_command({"calibrate", "--ranks", "4", "--nodes", "2", "--out", machine}).exit_code, 0);
  const json bill = bill_of(small({"--ranks", "4", "--nodes", "2", "--machine", machine, "--decompose", "--backward"}));
  EXPECT_EQ(bill.at("config").at("exchange"), "auto");
  EXPECT_EQ(bill.at("config").at("costs"), machine);
  EXPECT_EQ(bill.at("decomposition").size(), 10u);
  for (const json& row : bill.at("decomposition")) EXPECT_GT(row.at("span_us"), 0);
  int predicted = 0;
  for (const json& exchange : bill.at("exchanges")) {
    if (exchange.at("family") == "all-reduce") continue;
    EXPECT_GT(exchange.at("span_us"), 0);
    if (exchange.at("predicted_us").is_null()) continue;
    ++predicted;
    EXPECT_GT(exchange.at("roof_gbs"), 0);
  }
  // Chosen once more in between, nothing is predicted, and the bill says so by its choices.
  EXPECT_TRUE(predicted == 4 || bill.at("choices").size() > 1);
}

TEST(BenchRuns, DifferentSeedsGiveOtherBits) {
  EXPECT_NE(bill_of(small({"--tokens", "16", "--seed", "1"})).at("output_hash"),
            bill_of(small({"--tokens", "16", "--seed", "2"})).at("output_hash"));
}

TEST(BenchRuns, ThePartsAddUpOnEveryRank) {
  const json bill = bill_of(small({"--ranks", "4", "--tokens", "64", "--backward", "--recompute"}));
  ASSERT_EQ(bill.at("ranks").size(), 4u);
  for (const json& rank : bill.at("ranks")) {
    double sum = 0;
    for (const char* part : {"compute_us", "pack_us", "wire_us", "wait_us", "launch_us", "other_us"}) {
      sum += rank.at(part).get<double>();
    }
    EXPECT_NEAR(sum, rank.at("step_us").get<double>(), 0.01 * rank.at("step_us").get<double>());
  }
}

TEST(BenchRuns, TheBillSaysWhatWasAskedFor) {
  const json config = bill_of(small({"--ranks", "4", "--ep-size", "2", "--tokens", "8", "--backward", "--recompute",
                                     "--delay", "3:1.5", "--deadline", "20"}))
                          .at("config");
  EXPECT_EQ(config.at("ep_size"), 2);
  EXPECT_EQ(config.at("recompute"), true);
  EXPECT_EQ(config.at("delays"), json::parse(R"([{"rank": 3, "ms": 1.5}])"));
  EXPECT_EQ(config.at("deadline_s"), 20.0);
  EXPECT_EQ(config.at("transport"), "local-processes");
  EXPECT_EQ(config.at("exchange"), "flat");
  EXPECT_EQ(bill_of(small({"--ranks", "2", "--tokens", "8"})).at("config").at("ep_size"), 2);
}

TEST(BenchRuns, ADelayedRankIsNamedWithItsDelay) {
  const json bill = bill_of(small({"--ranks", "2", "--tokens", "64", "--delay", "1:100"}));
  const json& waiter = bill.at("ranks").at(0);
  const json& waited = waiter.at("waited_for").at(0);
  EXPECT_EQ(waited.at("rank"), 1);
  EXPECT_THAT(waited.at("cause").get<std::string>(), HasSubstr("planted"));
  // What rank 0 waited because of the delay, against the sleep that rank 1 measured itself: long beside what a busy
  // machine does to either.
  const double slept = bill.at("ranks").at(1).at("other_us").get<double>();
  EXPECT_GE(slept, 100e3);
  EXPECT_NEAR(waited.at("by_cause_us").at("planted-delay").get<double>(), slept, 0.1 * slept);
}

// The forward is the same; the backward sends the tokens once more.
TEST(BenchRuns, RecomputedActivationsKeepTheOutputAndSendTokensAgain) {
  const std::vector<std::string> run = {"--ranks", "2", "--tokens", "32", "--backward"};
  std::vector<std::string> again = run;
  again.push_back("--recompute");
  const json kept = bill_of(small(run)), recomputed = bill_of(small(again));
  EXPECT_EQ(recomputed.at("output_hash"), kept.at("output_hash"));
  const auto sent_again = [](const json& bill) {
    int calls = 0;
    for (const json& x : bill.at("exchanges")) {
      if (x.at("name") == "redispatch") calls += x.at("calls").get<int>();
    }
    return calls;
  };
  EXPECT_EQ(sent_again(kept), 0);
  EXPECT_EQ(sent_again(recomputed), 3);
  EXPECT_EQ(recomputed.at("config").at("recompute"), true);
  EXPECT_EQ(run_command(small({"--recompute"})).exit_code, 2);  // without a backward
}

TEST(BenchRuns, ReductionsOverAllRanksAndOverReplicasAreToldApart) {
  const json bill = bill_of(small({"--ranks", "4", "--ep-size", "2", "--tokens", "16", "--backward", "--layers", "2"}));
  std::map<std::string, int> calls;
  for (const json& exchange : bill.at("exchanges")) calls[exchange.at("name")] += exchange.at("calls").get<int>();
  EXPECT_EQ(calls["reduce (router, shared)"], 3 * 2 * 3);  // router, two matrices of the shared experts
  EXPECT_EQ(calls["reduce (experts)"], 3 * 2 * 2);
}

TEST(BenchRuns, UnequalAndEmptyRanks) {
  const json bill = bill_of(small({"--ranks", "3", "--tokens", "0,50,7"}));
  const json one = bill_of(small({"--ranks", "1", "--tokens", "57"}));
  EXPECT_EQ(bill.at("output_hash"), one.at("output_hash"));
}

TEST(BenchRuns, ExpertsThatRanksDoNotDivideAreSpread) {
  const json bill = bill_of(small({"--experts", "10", "--ranks", "4", "--tokens", "8"}));
  EXPECT_EQ(bill.at("config").at("experts_per_rank"), json::parse("[3,3,2,2]"));
}

TEST(BenchRuns, CountedBytesAreWhatTheFormulasExpect) {
  const json bill = bill_of(small({"--ranks", "4", "--tokens", "1024", "--routing", "uniform"}));
  const double row_bytes = 64 * 2;
  const auto near = [&](const json& exchange, double expected_per_rank) {
    EXPECT_NEAR(exchange.at("physical_bytes").get<double>(), 4 * expected_per_rank, 0.03 * 4 * expected_per_rank)
        << exchange.at("name");
  };
  near(bill.at("exchanges").at(0), expected_dispatch_bytes(1024, 16, 4, 4, row_bytes));
  near(bill.at("exchanges").at(1), expected_combine_bytes(1024, 4, 4, row_bytes));
}

TEST(BenchRuns, ThresholdsDecideTheExitCode) {
  EXPECT_EQ(run_command(small({"--tokens", "16", "--fail-on", "tax>0%"})).exit_code, 1);
  EXPECT_EQ(run_command(small({"--tokens", "16", "--fail-on", "tax>100%"})).exit_code, 0);
}

TEST(BenchRuns, ARecordedRouteReplaysToTheSameBits) {
  const std::string path = temporary_path("routes.txt");
  const json recorded = bill_of(small({"--ranks", "2", "--tokens", "32", "--record-routing", path}));
  const json replayed = bill_of(small({"--ranks", "4", "--tokens", "16", "--routing", "tokens:" + path}));
  EXPECT_EQ(replayed.at("output_hash"), recorded.at("output_hash"));
  EXPECT_EQ(replayed.at("routing").at("expert_tokens"), recorded.at("routing").at("expert_tokens"));
}

TEST(BenchRuns, CountsFromAFileShapeTheLoad) {
  std::string csv = "layer_id,expert_id,count\n";
  for (int e = 0; e < 16; ++e) csv += "3," + std::to_string(e) + "," + (e == 5 ? "400" : "100") + "\n";
  const std::string path = write_file("load.csv", csv);
  const json bill = bill_of(small({"--ranks", "2", "--tokens", "512", "--routing", "counts:" + path + ":3"}));
  const json& tokens = bill.at("routing").at("expert_tokens").at(0);
  // Expert 5 takes 400 of 1900 counts: 4 * 400 / 1900 of the 1024 tokens choose it.
  EXPECT_NEAR(tokens.at(5).get<double>(), 1024.0 * 4 * 400 / 1900, 60);
}

TEST(BenchRuns, TextBillAndTrace) {
  const std::string trace = temporary_path("trace.json");
  std::vector<std::string> arguments = small({"--ranks", "2", "--tokens", "32", "--trace", trace});
  arguments.erase(arguments.end() - 8, arguments.end() - 6);  // without --json -
  const CommandResult result = run_command(arguments);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const std::string& line : lines_of(result.out)) EXPECT_LE(line.size(), 130u) << line;
  std::ifstream in(trace);
  const json events = json::parse(in, nullptr, false);
  ASSERT_FALSE(events.is_discarded());
  EXPECT_GT(events.at("traceEvents").size(), 10u);
}

TEST(BenchRuns, EveryPresetRunsInMiniature) {
  for (const char* name : {"deepseek-moe-16b", "deepseek-v2-lite", "deepseek-v2", "deepseek-v3", "mixtral-8x7b",
                           "qwen3-30b-a3b", "olmoe-1b-7b", "gpt-oss-20b"}) {
    const json bill = bill_of({"bench", "--preset", name, "--hidden", "32", "--inter", "16", "--tokens", "16",
                               "--steps", "1", "--warmup", "0", "--json", "-"});
    EXPECT_EQ(bill.at("schema"), "moetax.bill/1") << name;
  }
}

// As many layers as models have: values and gradients stay numbers.
TEST(BenchRuns, LongChainsStayFinite) {
  for (const char* name : {"mixtral-8x7b", "deepseek-v3", "gpt-oss-20b"}) {
    const json bill =
        bill_of({"bench",  "--preset", name, "--hidden",      "64",      "--inter", "64",       "--experts",
                 "8",      "--groups", "1",  "--topk-groups", "1",       "--topk",  "4",        "--tokens",
                 "16",     "--layers", "32", "--backward",    "--steps", "1",       "--warmup", "0",
                 "--json", "-"});
    EXPECT_EQ(bill.at("config").at("layers"), 32) << name;
  }
}

TEST(BenchRealData, EveryConfigRunsOrSaysWhyNot) {
  MOETAX_NEEDS_SHARED_DATA();
  const std::filesystem::path data = shared_data();
  int ran = 0, refused = 0;
  for (const auto& file : std::filesystem::directory_iterator(data / "configs")) {
    const CommandResult result = run_command({"bench", "--config", file.path().string(), "--hidden", "32", "--inter",
                                              "16", "--tokens", "16", "--steps", "1", "--warmup", "0", "--json", "-"});
    if (result.exit_code == 0) {
      ++ran;
      continue;
    }
    ++refused;
    EXPECT_TRUE(result.exit_code == 3 || result.exit_code == 4) << file.path() << result.err;
    EXPECT_EQ(lines_of(result.err).size(), 1u) << result.err;
  }
  EXPECT_GE(ran, 10);
  EXPECT_GE(refused, 1);
}

TEST(BenchRealData, TheMeasuredLoadOfLayer19IsOnTheBill) {
  MOETAX_NEEDS_SHARED_DATA();
  const std::filesystem::path data = shared_data();
  const std::string counts = (data / "load" / "ESFT_law_layer_expert_count.csv").string();
  const json bill =
      bill_of({"bench", "--preset", "deepseek-v2-lite", "--hidden", "32", "--inter", "16", "--ranks", "8", "--tokens",
               "512", "--steps", "1", "--warmup", "0", "--json", "-", "--routing", "counts:" + counts + ":19"});
  EXPECT_NEAR(bill.at("routing").at("rank_max_over_mean").get<double>(), 2.32, 0.12);
}

}  // namespace
}  // namespace moetax::testing
