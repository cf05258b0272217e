// How the tokens fell on experts and ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "moetax/report/bill.h"

namespace moetax::report {

struct ExpertLoad {
  std::vector<std::vector<std::int64_t>> expert_tokens;  // [layers][experts], all ranks
  std::vector<std::vector<double>> rank_rows;            // [layers][ranks]; empty when the placement is unknown
  std::vector<int> first_expert;                         // of each rank, as rank_rows

  bool known() const { return !rank_rows.empty(); }
  double rows(Rank rank) const;  // one step, all layers
  double mean_rows() const;      // over ranks
  double rows(std::size_t layer, Rank rank) const { return rank_rows[layer][static_cast<std::size_t>(rank)]; }
  double mean_rows(std::size_t layer) const;
};

// Ranks hold contiguous blocks of experts as config.experts_per_rank says; where its sum is a multiple of the experts,
// there are that many replicas, each with the tokens of its own ranks.
ExpertLoad measure_load(const std::vector<RankLedger>& ledgers, const BillConfig& config);

// Entropies, ratios and experts never chosen.
void fill_routing(const ExpertLoad& load, BillRouting& routing);

double mean(const std::vector<std::int64_t>& values);
std::size_t worst_layer(const std::vector<std::vector<std::int64_t>>& expert_tokens);  // highest max/mean
// The `count` experts with the most tokens among [first, end), most first; none without tokens.
std::vector<int> hottest(const std::vector<std::int64_t>& tokens, std::size_t count, int first, int end);

}  // namespace moetax::report
