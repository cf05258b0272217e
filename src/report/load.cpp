#include "report/load.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace moetax::report {
namespace {

using Tokens = std::vector<std::vector<std::int64_t>>;

void add(const Tokens& from, Tokens& to) {
  if (to.size() < from.size()) to.resize(from.size());
  for (std::size_t layer = 0; layer < from.size(); ++layer) {
    if (to[layer].size() < from[layer].size()) to[layer].resize(from[layer].size());
    for (std::size_t e = 0; e < from[layer].size(); ++e) to[layer][e] += from[layer][e];
  }
}

double max_over_mean(const std::vector<std::int64_t>& tokens) {
  const double average = mean(tokens);
  return average > 0 ? static_cast<double>(*std::max_element(tokens.begin(), tokens.end())) / average : 0;
}

double entropy_bits(const std::vector<std::int64_t>& tokens) {
  const double total = mean(tokens) * static_cast<double>(tokens.size());
  double bits = 0;
  for (const std::int64_t count : tokens) {
    if (count <= 0) continue;
    const double p = static_cast<double>(count) / total;
    bits -= p * std::log2(p);
  }
  return std::max(bits, 0.0);
}

// First expert of each rank, or empty when the blocks of consecutive ranks do not make up whole sets of experts.
std::vector<int> first_experts(const BillConfig& config, std::size_t ranks) {
  std::vector<int> first;
  if (config.experts <= 0 || config.experts_per_rank.size() != ranks) return first;
  int next = 0;
  for (const int count : config.experts_per_rank) {
    if (next == config.experts && count > 0) next = 0;
    if (count < 0 || count > config.experts - next) return {};
    first.push_back(next);
    next += count;
  }
  return next == config.experts ? first : std::vector<int>{};
}

std::vector<double> rows_of_replica(const std::vector<std::int64_t>& tokens, const BillConfig& config,
                                    const std::vector<int>& first, std::size_t begin, std::size_t end) {
  std::vector<double> rows;
  for (std::size_t rank = begin; rank < end; ++rank) {
    double sum = 0;
    for (int i = 0; i < config.experts_per_rank[rank]; ++i) {
      const std::size_t expert = static_cast<std::size_t>(first[rank]) + static_cast<std::size_t>(i);
      if (expert < tokens.size()) sum += static_cast<double>(tokens[expert]);
    }
    rows.push_back(sum);
  }
  return rows;
}

void place_rows(const std::vector<RankLedger>& ledgers, const BillConfig& config, ExpertLoad& load) {
  load.first_expert = first_experts(config, ledgers.size());
  if (load.first_expert.empty()) return;
  load.rank_rows.resize(load.expert_tokens.size());
  for (std::size_t begin = 0; begin < ledgers.size();) {
    std::size_t end = begin + 1;
    while (end < ledgers.size() && load.first_expert[end] != 0) ++end;
    Tokens tokens(load.expert_tokens.size());
    for (std::size_t rank = begin; rank < end; ++rank) add(ledgers[rank].expert_tokens, tokens);
    for (std::size_t layer = 0; layer < tokens.size(); ++layer) {
      const auto rows = rows_of_replica(tokens[layer], config, load.first_expert, begin, end);
      load.rank_rows[layer].insert(load.rank_rows[layer].end(), rows.begin(), rows.end());
    }
    begin = end;
  }
}

}  // namespace

double mean(const std::vector<std::int64_t>& values) {
  double sum = 0;
  for (const std::int64_t value : values) sum += static_cast<double>(value);
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

std::size_t worst_layer(const Tokens& expert_tokens) {
  std::size_t worst = 0;
  for (std::size_t layer = 1; layer < expert_tokens.size(); ++layer) {
    if (max_over_mean(expert_tokens[layer]) > max_over_mean(expert_tokens[worst])) worst = layer;
  }
  return worst;
}

std::vector<int> hottest(const std::vector<std::int64_t>& tokens, std::size_t count, int first, int end) {
  std::vector<int> experts;
  for (int e = first; e < std::min(end, static_cast<int>(tokens.size())); ++e) {
    if (tokens[static_cast<std::size_t>(e)] > 0) experts.push_back(e);
  }
  std::stable_sort(experts.begin(), experts.end(), [&](int a, int b) {
    return tokens[static_cast<std::size_t>(a)] > tokens[static_cast<std::size_t>(b)];
  });
  experts.resize(std::min(experts.size(), count));
  return experts;
}

double ExpertLoad::rows(Rank rank) const {
  double sum = 0;
  for (std::size_t layer = 0; layer < rank_rows.size(); ++layer) sum += rows(layer, rank);
  return sum;
}

double ExpertLoad::mean_rows(std::size_t layer) const {
  const auto& rows = rank_rows[layer];
  return rows.empty() ? 0 : std::accumulate(rows.begin(), rows.end(), 0.0) / static_cast<double>(rows.size());
}

double ExpertLoad::mean_rows() const {
  double sum = 0;
  for (std::size_t layer = 0; layer < rank_rows.size(); ++layer) sum += mean_rows(layer);
  return sum;
}

ExpertLoad measure_load(const std::vector<RankLedger>& ledgers, const BillConfig& config) {
  ExpertLoad load;
  for (const RankLedger& ledger : ledgers) add(ledger.expert_tokens, load.expert_tokens);
  place_rows(ledgers, config, load);
  return load;
}

void fill_routing(const ExpertLoad& load, BillRouting& routing) {
  routing.expert_tokens = load.expert_tokens;
  double layers = 0;
  routing.entropy_bits = routing.entropy_max_bits = 0;
  routing.experts_never_chosen = 0;
  for (const auto& tokens : load.expert_tokens) {
    if (mean(tokens) <= 0) continue;
    layers += 1;
    routing.entropy_bits += entropy_bits(tokens);
    routing.entropy_max_bits += std::log2(static_cast<double>(tokens.size()));
    routing.experts_never_chosen += std::count(tokens.begin(), tokens.end(), 0);
  }
  if (layers == 0) return;
  routing.entropy_bits /= layers;
  routing.entropy_max_bits /= layers;
  routing.expert_max_over_mean = max_over_mean(load.expert_tokens[worst_layer(load.expert_tokens)]);
  if (!load.known()) return;
  double worst = 0;
  for (std::size_t layer = 0; layer < load.rank_rows.size(); ++layer) {
    const double average = load.mean_rows(layer);
    const auto& rows = load.rank_rows[layer];
    if (average > 0) worst = std::max(worst, *std::max_element(rows.begin(), rows.end()) / average);
  }
  routing.rank_max_over_mean = worst;
}

}  // namespace moetax::report
