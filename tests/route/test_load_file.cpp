#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <set>

#include "moetax/route/load_file.h"
#include "shared_data.h"

namespace moetax {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

template <class T>
void expect_bad(const Result<T>& result, const std::string& begins, std::initializer_list<const char*> parts) {
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kBadInput);
  EXPECT_THAT(result.error().message, AllOf(StartsWith(begins), Not(HasSubstr("\n"))));
  for (const char* part : parts) EXPECT_THAT(result.error().message, HasSubstr(part));
}

// ---- counts ---------------------------------------------------------------------------------------------------------

Result<std::vector<ExpertCounts>> counts_of(std::string_view text, int experts = 4) {
  return parse_expert_counts(text, "load.csv", experts);
}

TEST(ExpertCountsFile, RowsInAnyOrderAddUp) {
  const auto layers = counts_of(
      "layer_id,expert_id,count\n"
      "# measured on a Tuesday\n"
      "7,3,10\n\n"
      " 2 , 0 , 1.5 \r\n"
      "7,1,2\n"
      "layer_id,expert_id,count\n"  // the next rank's file
      "7,3,1e1");
  ASSERT_TRUE(layers) << layers.error().message;
  ASSERT_EQ(layers->size(), 2u);
  EXPECT_EQ((*layers)[0].layer, 2);
  EXPECT_THAT((*layers)[0].counts, ElementsAre(1.5, 0, 0, 0));
  EXPECT_EQ((*layers)[1].layer, 7);
  EXPECT_THAT((*layers)[1].counts, ElementsAre(0, 2, 0, 20));
}

TEST(ExpertCountsFile, TheHeaderIsOptionalAndOrdersTheColumns) {
  EXPECT_THAT(counts_of("0,3,5\n")->front().counts, ElementsAre(0, 0, 0, 5));
  EXPECT_THAT(counts_of("\xef\xbb\xbf"
                        "count,layer_id,share,expert_id\n5,0,0.1,3\n")
                  ->front()
                  .counts,
              ElementsAre(0, 0, 0, 5));
  expect_bad(counts_of("layer_id,count\n1,2\n"), "load.csv:1: ", {"no column expert_id"});
}

TEST(ExpertCountsFile, BadLinesAreNamed) {
  expect_bad(counts_of("0,3,5\n0,4,5\n"), "load.csv:2: ", {"expert 4", "the model has 4 (0 to 3)"});
  expect_bad(counts_of("0,-1,5\n"), "load.csv:1: ", {"expert_id"});
  expect_bad(counts_of("0,1.5,5\n"), "load.csv:1: ", {"expert_id"});
  expect_bad(counts_of("0,99999999999999999999,5\n"), "load.csv:1: ", {"expert_id"});
  expect_bad(counts_of("-1,0,5\n"), "load.csv:1: ", {"layer_id"});
  expect_bad(counts_of("10000,0,5\n"), "load.csv:1: ", {"layer_id", "9999"});
  expect_bad(counts_of("0,0,-5\n"), "load.csv:1: ", {"count"});
  expect_bad(counts_of("0,0,nan\n"), "load.csv:1: ", {"count"});
  expect_bad(counts_of("0,0,inf\n"), "load.csv:1: ", {"count"});
  expect_bad(counts_of("0,0,1e400\n"), "load.csv:1: ", {"count"});
  expect_bad(counts_of("0,0,\n"), "load.csv:1: ", {"count"});
  expect_bad(counts_of("0,0,5,6\n"), "load.csv:1: ", {"4 fields", "layer_id,expert_id,count"});
  expect_bad(counts_of("\n\n{\"weight\": 3}\n"), "load.csv:3: ", {"1 field", "layer_id,expert_id,count"});
}

TEST(ExpertCountsFile, OtherFilesAreToldApart) {
  expect_bad(counts_of(""), "load.csv: ", {"no rows", "layer_id,expert_id,count"});
  expect_bad(counts_of("layer_id,expert_id,count\n"), "load.csv: ", {"no rows"});
  expect_bad(counts_of("layer_id,expert_ids\n3,52 40\n"), "load.csv:1: ", {"llama.cpp"});
  expect_bad(counts_of("3,52 40 85\n"), "load.csv:1: ", {"llama.cpp"});
  expect_bad(counts_of("3\t1\t2\n"), "load.csv:1: ", {"routes"});
  expect_bad(counts_of("5,0,1\n5,3,0\n4,3,0\n"), "load.csv: ", {"layer 4", "zero"});
}

TEST(ExpertCountsFile, OfASmallerModelIsRefused) {
  const auto first = [](int experts) {
    std::string text;
    for (int e = 0; e < experts; ++e) text += "0," + std::to_string(e) + ",1\n";
    return text;
  };
  expect_bad(counts_of(first(8), 64), "load.csv: ", {"holds 8 experts, the model has 64"});
  expect_bad(counts_of(first(47), 64), "load.csv: ", {"holds 47 experts"});
  EXPECT_TRUE(counts_of(first(48), 64));              // a quarter unnamed: unlucky, not another model
  EXPECT_TRUE(counts_of(first(8) + "1,63,1\n", 64));  // the largest id shows that the model is large enough
}

TEST(ExpertCountsFile, PickLayer) {
  const auto layers = *counts_of("3,0,1\n5,1,1\n", 2);
  EXPECT_EQ(pick_layer(layers, 5, "load.csv")->layer, 5);
  expect_bad(pick_layer(layers, 4, "load.csv"), "load.csv: ", {"no layer 4", "3, 5"});
  expect_bad(pick_layer(layers, std::nullopt, "load.csv"), "load.csv: ", {"name one", "3, 5"});
  std::string many;
  for (int layer = 100; layer < 300; ++layer) many += std::to_string(layer) + ",0,1\n";
  expect_bad(pick_layer(*counts_of(many, 1), 7, "load.csv"), "load.csv: ", {"no layer 7", "200 from 100 to 299"});
  EXPECT_EQ(pick_layer(*counts_of("3,0,1\n", 1), std::nullopt, "load.csv")->layer, 3);
}

TEST(ExpertCountsFile, ReadsFromDisk) {
  const std::string path = testing::TempDir() + "/moetax_load.csv";
  std::ofstream(path) << "0,3,5\n";
  EXPECT_EQ(read_expert_counts(path, 4)->size(), 1u);
  std::ofstream(path) << "\x1f\x8b\x08";
  expect_bad(read_expert_counts(path, 4), path + ": ", {"gzip"});
  std::filesystem::remove(path);
  expect_bad(read_expert_counts(path, 4), path + ": ", {"No such file"});
}

// ---- routes ---------------------------------------------------------------------------------------------------------

Result<RoutingTrace> routes_of(std::string_view text, int experts = 8, int topk = 2) {
  return RoutingTrace::parse(text, "routes.txt", experts, topk);
}

std::vector<std::int32_t> experts_of(const RoutingTable& table) {
  const auto view = table.expert();
  return {view.data, view.data + view.rows * view.cols};
}
std::vector<float> weights_of(const RoutingTable& table) {
  const auto view = table.weight();
  return {view.data, view.data + view.rows * view.cols};
}

TEST(RoutingTrace, ReadsOneOrMoreTokensALine) {
  const auto trace = routes_of("5\t0\t3\t7\t\t0.5\t0.25\t0.75\t0.125\t\n\n1\t2\t\t1\t-0.5\r\n");
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_EQ(trace->tokens(), 3);
  RoutingTable table;
  trace->fill(0, 3, table);
  EXPECT_THAT(experts_of(table), ElementsAre(5, 0, 3, 7, 1, 2));
  EXPECT_THAT(weights_of(table), ElementsAre(0.5f, 0.25f, 0.75f, 0.125f, 1.0f, -0.5f));
}

TEST(RoutingTrace, WithoutWeightsEachIsOneKth) {
  const auto trace = routes_of("5\t0\n3\t7\t\n");
  ASSERT_TRUE(trace) << trace.error().message;
  RoutingTable table;
  trace->fill(0, 2, table);
  EXPECT_THAT(weights_of(table), ElementsAre(0.5f, 0.5f, 0.5f, 0.5f));
}

TEST(RoutingTrace, WrapsAroundAtTheEnd) {
  const auto trace = routes_of("0\n1\n2\n", 8, 1);
  RoutingTable table;
  trace->fill(1'000'000'000'001, 4, table);
  EXPECT_THAT(experts_of(table), ElementsAre(2, 0, 1, 2));
  trace->fill(5, 0, table);
  EXPECT_EQ(table.tokens(), 0);
}

TEST(RoutingTrace, BadLinesAreNamed) {
  expect_bad(routes_of("1\t2\n3\t8\n"), "routes.txt:2: ", {"expert 8", "the model has 8 (0 to 7)"});
  expect_bad(routes_of("1\t-2\n"), "routes.txt:1: ", {"expert -2"});
  expect_bad(routes_of("1\tx\n"), "routes.txt:1: ", {"not an expert id", "2 ids a token"});
  expect_bad(routes_of("1 2\n"), "routes.txt:1: ", {"not an expert id", "tabs"});
  expect_bad(routes_of("1\t2\n4\t4\n"), "routes.txt:2: ", {"expert 4 twice"});
  expect_bad(routes_of("1\t2\t3\n"), "routes.txt:1: ", {"3 expert ids, expected 2 for each token"});
  expect_bad(routes_of("\t0.5\t0.5\n"), "routes.txt:1: ", {"0 expert ids"});
  expect_bad(routes_of("1\t2\t\t0.5\n"), "routes.txt:1: ", {"1 weights for 2 expert ids"});
  expect_bad(routes_of("1\t2\t\t0.5\tnan\n"), "routes.txt:1: ", {"finite"});
  expect_bad(routes_of("1\t2\t\t0.5\t1e50\n"), "routes.txt:1: ", {"finite"});
  expect_bad(routes_of("1\t2\t\t0.5\t\t0.5\n"), "routes.txt:1: ", {"empty field among the weights"});
  expect_bad(routes_of("1\t2\t\t0.5\t0.5\n1\t2\n"), "routes.txt:2: ", {"weights on some lines only"});
  expect_bad(routes_of("1\t2\n1\t2\t\t0.5\t0.5\n"), "routes.txt:2: ", {"weights on some lines only"});
}

TEST(RoutingTrace, OtherFilesAreToldApart) {
  expect_bad(routes_of("\n# nothing\n"), "routes.txt: ", {"no tokens", "2 expert ids a token"});
  expect_bad(routes_of("layer_id,expert_ids\n3,52 40\n"), "routes.txt:1: ", {"llama.cpp"});
  expect_bad(routes_of("layer_id,expert_id,count\n"), "routes.txt:1: ", {"not an expert id"});
  // Twice as many experts a token as this model chooses: not two tokens a line.
  expect_bad(routes_of("1\t2\t3\t4\n5\t6\t7\t0\n"),
             "routes.txt: ", {"every line holds 4 expert ids, the model chooses 2"});
  EXPECT_EQ(routes_of("1\t2\t3\t4\n5\t6\n")->tokens(), 3);
}

TEST(RoutingTrace, AppendedTablesReadBackToTheSameBits) {
  const std::string path = testing::TempDir() + "/moetax_routes.txt";
  std::filesystem::remove(path);
  RoutingTable table;
  table.resize(3, 2);
  const std::vector<std::int32_t> experts = {5, 0, 3, 7, 1, 2};
  const std::vector<float> weights = {0.1f, 1.0f / 3.0f, 1.17549435e-38f, 3.4028235e38f, 1e-45f, -0.0f};
  std::copy(experts.begin(), experts.end(), table.expert().data);
  std::copy(weights.begin(), weights.end(), table.weight().data);
  ASSERT_TRUE(append_routing(path, table));
  ASSERT_TRUE(append_routing(path, table));
  const auto trace = RoutingTrace::read(path, 8, 2);
  ASSERT_TRUE(trace) << trace.error().message;
  ASSERT_EQ(trace->tokens(), 6);
  RoutingTable back;
  for (const std::int64_t first : {0, 3}) {
    trace->fill(first, 3, back);
    EXPECT_EQ(experts_of(back), experts);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(weights_of(back)[i]), std::bit_cast<std::uint32_t>(weights[i]));
    }
  }
  std::filesystem::remove(path);
  expect_bad(append_routing("/no/such/folder/routes.txt", table), "/no/such/folder/routes.txt: ", {"written"});
}

// ---- sampling -------------------------------------------------------------------------------------------------------

// How often each expert is among the K of each token; checks on the way that the K are distinct and ascend.
std::vector<double> sampled_share(const std::vector<double>& counts, int topk, std::uint64_t seed, int tokens) {
  RoutingTable table;
  sample_routing(counts, topk, seed, 0, tokens, table);
  std::vector<double> share(counts.size(), 0.0);
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (int k = 0; k < topk; ++k) {
      const std::int32_t expert = table.expert()(t, k);
      EXPECT_TRUE(k == 0 || table.expert()(t, k - 1) < expert);
      EXPECT_EQ(table.weight()(t, k), 1.0f / static_cast<float>(topk));
      share.at(static_cast<std::size_t>(expert)) += 1;
    }
  }
  for (double& value : share) value /= tokens;
  return share;
}

// Each expert's share is within five standard deviations of its exact probability.
void expect_shares(const std::vector<double>& share, const std::vector<double>& probability, int tokens) {
  for (std::size_t e = 0; e < probability.size(); ++e) {
    const double p = probability[e];
    EXPECT_NEAR(share[e], p, 5 * std::sqrt(p * (1 - p) / tokens) + 1e-9) << "expert " << e;
  }
}

TEST(SampleRouting, IncludesEachExpertInProportionToItsCount) {
  constexpr int kTokens = 40'000;
  std::vector<double> counts(16);
  std::iota(counts.begin(), counts.end(), 1.0);  // the largest is 16 / 136 * 4 = 0.47 of the tokens
  std::vector<double> probability;
  for (const double count : counts) probability.push_back(4 * count / 136);
  for (const std::uint64_t seed : {1, 2, 3})
    expect_shares(sampled_share(counts, 4, seed, kTokens), probability, kTokens);
}

TEST(SampleRouting, CapsAtCertaintyAndSharesTheRest) {
  constexpr int kTokens = 40'000;
  // 2 * 90 / 100 would be 1.8: certain, and the one place left is shared by the rest in proportion.
  expect_shares(sampled_share({1, 90, 2, 3, 4}, 2, 7, kTokens), {0.1, 1, 0.2, 0.3, 0.4}, kTokens);
  // Capping the first makes the second certain as well.
  expect_shares(sampled_share({1000, 100, 1, 1}, 3, 7, kTokens), {1, 1, 0.5, 0.5}, kTokens);
}

TEST(SampleRouting, ZeroCountsComeOnlyWhenNothingElseIsLeft) {
  constexpr int kTokens = 40'000;
  EXPECT_EQ(sampled_share({0, 5, 5, 0, 5}, 2, 1, 1000)[0], 0);
  expect_shares(sampled_share({0, 5, 0, 9, 0}, 3, 1, kTokens), {1.0 / 3, 1, 1.0 / 3, 1, 1.0 / 3}, kTokens);
  expect_shares(sampled_share({0, 0, 0, 0}, 1, 1, kTokens), {0.25, 0.25, 0.25, 0.25}, kTokens);
}

TEST(SampleRouting, ExtremeShapes) {
  EXPECT_EQ(sampled_share({3}, 1, 1, 10)[0], 1);
  EXPECT_THAT(sampled_share({1, 1e300, 1e-300, 0}, 4, 1, 8), ElementsAre(1, 1, 1, 1));
  const std::vector<double> most = sampled_share(std::vector<double>(4096, 1e15), 32, 1, 64);
  EXPECT_NEAR(std::accumulate(most.begin(), most.end(), 0.0), 32, 1e-9);
}

TEST(SampleRouting, PairsOccurInEveryCombination) {
  // A fixed order would make neighbours exclude each other: with 8 equal experts and K = 2 all 28 pairs must come up
  // about equally often.
  RoutingTable table;
  constexpr int kTokens = 28'000;
  sample_routing(std::vector<double>(8, 1.0), 2, 11, 0, kTokens, table);
  std::vector<int> pairs(64, 0);
  for (std::int64_t t = 0; t < kTokens; ++t) {
    ++pairs[static_cast<std::size_t>(table.expert()(t, 0) * 8 + table.expert()(t, 1))];
  }
  for (std::size_t a = 0; a < 8; ++a) {
    for (std::size_t b = a + 1; b < 8; ++b) EXPECT_NEAR(pairs[a * 8 + b], 1000, 200);
  }
}

TEST(SampleRouting, ATokenDependsOnItsNumberAndTheSeedOnly) {
  const std::vector<double> counts = zipf_counts(64, 1.0, 5);
  RoutingTable whole, part;
  sample_routing(counts, 6, 9, 0, 100, whole);
  sample_routing(counts, 6, 9, 40, 20, part);
  const std::vector<std::int32_t> all = experts_of(whole);
  EXPECT_EQ(experts_of(part), std::vector<std::int32_t>(all.begin() + 240, all.begin() + 360));
  sample_routing(counts, 6, 10, 0, 100, part);
  EXPECT_NE(experts_of(part), all);
}

TEST(ZipfCounts, AreAPermutationOfThePowers) {
  const std::vector<double> counts = zipf_counts(8, 1.5, 3);
  std::vector<double> sorted = counts;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  for (std::size_t i = 0; i < 8; ++i) EXPECT_DOUBLE_EQ(sorted[i], std::pow(static_cast<double>(i + 1), -1.5));
  EXPECT_EQ(counts, zipf_counts(8, 1.5, 3));
  EXPECT_NE(zipf_counts(64, 1.5, 3), zipf_counts(64, 1.5, 4));
  EXPECT_THAT(zipf_counts(3, 0, 1), ElementsAre(1, 1, 1));
  EXPECT_THAT(zipf_counts(1, 2, 1), ElementsAre(1));
}

// ---- real files -----------------------------------------------------------------------------------------------------

double max_over_mean(const std::vector<double>& values) {
  const double total = std::accumulate(values.begin(), values.end(), 0.0);
  return *std::max_element(values.begin(), values.end()) * static_cast<double>(values.size()) / total;
}

std::vector<double> rank_load(const std::vector<double>& counts, int ranks) {
  const ExpertPlacement placement{static_cast<int>(counts.size()), ranks};
  std::vector<double> load(static_cast<std::size_t>(ranks), 0.0);
  for (std::size_t e = 0; e < counts.size(); ++e) {
    load[static_cast<std::size_t>(placement.owner(static_cast<int>(e)))] += counts[e];
  }
  return load;
}

TEST(RealLoad, OfDeepSeekV2LiteHasItsMeasuredSkew) {
  MOETAX_NEEDS_SHARED_DATA();
  const auto layers = read_expert_counts(shared_data() + "/load/ESFT_law_layer_expert_count.csv", 64);
  ASSERT_TRUE(layers) << layers.error().message;
  ASSERT_EQ(layers->size(), 26u);
  std::vector<double> expert_skew, rank_skew;
  for (const ExpertCounts& layer : *layers) {
    expert_skew.push_back(max_over_mean(layer.counts));
    rank_skew.push_back(max_over_mean(rank_load(layer.counts, 8)));
  }
  const auto worst = std::max_element(rank_skew.begin(), rank_skew.end());
  EXPECT_EQ((*layers)[static_cast<std::size_t>(worst - rank_skew.begin())].layer, 19);
  EXPECT_NEAR(*worst, 2.32, 0.005);
  std::sort(expert_skew.begin(), expert_skew.end());
  EXPECT_NEAR((expert_skew[12] + expert_skew[13]) / 2, 3.28, 0.005);
  EXPECT_NEAR(expert_skew.back(), 6.87, 0.005);
}

TEST(RealLoad, SampledRoutesKeepTheSkewOfLayer19) {
  MOETAX_NEEDS_SHARED_DATA();
  const auto layers = read_expert_counts(shared_data() + "/load/ESFT_law_layer_expert_count.csv", 64);
  ASSERT_TRUE(layers) << layers.error().message;
  const auto layer = pick_layer(*layers, 19, "");
  ASSERT_TRUE(layer);
  // The hottest expert may be chosen at most once a token; the cap takes nothing away here.
  const std::vector<double> share = sampled_share(layer->counts, 6, 1, 8192);
  EXPECT_NEAR(max_over_mean(rank_load(share, 8)), 2.32, 0.05);
}

TEST(RealLoad, OfAnotherModelIsRefused) {
  MOETAX_NEEDS_SHARED_DATA();
  const std::string path = shared_data() + "/load/ESFT_law_layer_expert_count.csv";
  expect_bad(read_expert_counts(path, 256), path + ": ", {"holds 64 experts, the model has 256"});
  expect_bad(read_expert_counts(path, 8), path + ":10: ", {"expert 8"});
}

TEST(RealLoad, SglangFilesOfTwoRanksAddUp) {
  MOETAX_NEEDS_SHARED_DATA();
  std::string both;
  for (const char* rank : {"0", "1"}) {
    std::ifstream file(shared_data() + "/load/sglang-5275_expert_distribution_rank" + rank + ".csv");
    both.append(std::istreambuf_iterator<char>(file), {});
    both += "\n";
  }
  // These are the first lines of files of a model with 64 experts; 44 is what they reach.
  expect_bad(parse_expert_counts(both, "both", 64), "both: ", {"holds 44 experts"});
  const auto layers = parse_expert_counts(both, "both", 44);
  ASSERT_TRUE(layers) << layers.error().message;
  EXPECT_EQ(layers->front().layer, 3);
  EXPECT_EQ(layers->front().counts[0], 24990);
  EXPECT_EQ(layers->front().counts[18], 39249 + 33056);
}

// The text of a gzip-compressed file.
std::string unpack(const std::string& path) {
  std::string text;
  FILE* pipe = popen(("gzip -dc '" + path + "'").c_str(), "r");
  if (!pipe) return text;
  std::vector<char> chunk(1 << 16);
  for (std::size_t got; (got = fread(chunk.data(), 1, chunk.size(), pipe)) > 0;) text.append(chunk.data(), got);
  pclose(pipe);
  return text;
}

TEST(RealLoad, RecordedRoutesHaveTheCountsOfTheirLayer) {
  MOETAX_NEEDS_SHARED_DATA();
  const auto layers = read_expert_counts(shared_data() + "/load/ESFT_law_layer_expert_count.csv", 64);
  ASSERT_TRUE(layers) << layers.error().message;
  for (const int layer : {1, 13, 26}) {
    const std::string name = "ESFT_law_expert_weights_" + std::to_string(layer) + ".txt";
    const auto trace = RoutingTrace::parse(unpack(shared_data() + "/load/" + name + ".gz"), name, 64, 6);
    ASSERT_TRUE(trace) << trace.error().message;
    RoutingTable table;
    trace->fill(0, trace->tokens(), table);
    std::vector<double> counts(64, 0.0);
    for (const std::int32_t expert : experts_of(table)) ++counts[static_cast<std::size_t>(expert)];
    EXPECT_EQ(counts, pick_layer(*layers, layer, name)->counts);
  }
}

TEST(RealLoad, OtherKindsOfFilesAreNamed) {
  MOETAX_NEEDS_SHARED_DATA();
  const std::string folder = shared_data() + "/load/";
  for (const auto& [file, what] : {std::pair{"okuvshynov_llama.cpp_moe_expert_selection_format.csv", "llama.cpp"},
                                   std::pair{"deepseek-EPLB-README_weight_2x12.json", "expected"},
                                   std::pair{"ESFT_law_expert_weights_1.txt.gz", "gzip"}}) {
    expect_bad(read_expert_counts(folder + file, 64), folder + file, {what});
    expect_bad(RoutingTrace::read(folder + file, 64, 6), folder + file, {what});
  }
}

}  // namespace
}  // namespace moetax
