#include "doctor/load.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace moetax::doctor {
namespace {

// Rows of each rank in one layer.
std::vector<double> rows_of_ranks(const ExpertCounts& layer, int ranks) {
  std::vector<double> rows(static_cast<std::size_t>(ranks), 0);
  const std::size_t block = layer.counts.size() / rows.size();
  for (std::size_t e = 0; e < layer.counts.size(); ++e) rows[e / block] += layer.counts[e];
  return rows;
}

}  // namespace

std::optional<RankBalance> rank_balance(const LoadFacts& load, int ranks) {
  if (ranks < 2 || !load.all_listed || load.experts < ranks || load.experts % ranks != 0) return std::nullopt;
  RankBalance balance;
  std::vector<double> busiest;
  for (const ExpertCounts& layer : load.layers) {
    const auto rows = rows_of_ranks(layer, ranks);
    const double sum = std::accumulate(rows.begin(), rows.end(), 0.0);
    if (sum <= 0) continue;
    const auto most = std::max_element(rows.begin(), rows.end());
    busiest.push_back(*most * ranks / sum);
    const double expert = *std::max_element(layer.counts.begin(), layer.counts.end()) * load.experts / sum;
    balance.worst_expert = std::max(balance.worst_expert, expert);
    if (busiest.size() > 1 && busiest.back() <= balance.worst) continue;
    balance.worst = busiest.back();
    balance.worst_layer = layer.layer;
    balance.worst_rank = static_cast<int>(most - rows.begin());
    balance.worst_rows = *most;
    balance.layer_rows = sum;
  }
  if (busiest.empty()) return std::nullopt;
  const auto middle = busiest.begin() + static_cast<std::ptrdiff_t>(busiest.size() / 2);
  std::nth_element(busiest.begin(), middle, busiest.end());
  balance.median = *middle;
  if (busiest.size() % 2 == 0) balance.median = (balance.median + *std::max_element(busiest.begin(), middle)) / 2;
  return balance;
}

}  // namespace moetax::doctor
