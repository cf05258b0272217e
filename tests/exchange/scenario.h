// A small world whose every row is known to everybody: tokens, choices and weights are functions of the global token
// number, and the "experts" of an elementwise formula, so that each rank can work out what it and the others must see.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "moetax/base/matrix.h"
#include "moetax/base/random.h"
#include "moetax/exchange/exchange.h"

namespace moetax::test {

enum class Choice { kUniform, kHotExpert };  // kHotExpert: every token has expert E - 1 first

// Storage for rows of a dtype.
struct RowStore {
  DType dtype = DType::kBf16;
  std::int64_t rows = 0, cols = 0;
  std::vector<std::byte> bytes;

  RowStore(DType d, std::int64_t r, std::int64_t c)
      : dtype(d), rows(r), cols(c), bytes(static_cast<std::size_t>(r * c) * size_of(d)) {}
  Rows view() { return {bytes.data(), dtype, rows, cols}; }
  ConstRows view() const { return {bytes.data(), dtype, rows, cols}; }
};

inline float rounded(DType dtype, float value) {
  return dtype == DType::kBf16 ? to_float(to_bf16(value)) : value;
}

struct Scenario {
  std::vector<std::int64_t> tokens;  // [R]
  std::int64_t hidden = 8;
  int experts = 4;
  int topk = 2;
  DType dtype = DType::kBf16;
  Choice choice = Choice::kUniform;
  int threads = 1;
  int ranks_per_node = 0;  // 0: all on one
  ExchangeAlgorithm algorithm = ExchangeAlgorithm::kFlat;
  bool fp32_sums = false;
  std::uint64_t round = 0;  // changes every value and choice

  int ranks() const { return static_cast<int>(tokens.size()); }
  std::int64_t first_token(Rank rank) const {
    return std::accumulate(tokens.begin(), tokens.begin() + rank, std::int64_t{0});
  }
  std::int64_t all_tokens() const { return first_token(ranks()); }
  ExpertPlacement placement() const { return {experts, ranks()}; }
  ExchangeOptions options(Rank rank) const {
    return {.max_tokens = tokens[static_cast<std::size_t>(rank)],
            .hidden = hidden,
            .experts = experts,
            .topk = topk,
            .dtype = dtype,
            .threads = threads,
            .algorithm = algorithm,
            .fp32_sums = fp32_sums,
            .deadline_s = 60};
  }

  // What is chosen and what is in the rows, by global token t.
  std::vector<int> chosen(std::int64_t t) const {
    std::vector<int> ids(static_cast<std::size_t>(experts));
    std::iota(ids.begin(), ids.end(), 0);
    const RandomStream random(1 + round, static_cast<std::uint64_t>(t));
    if (choice == Choice::kHotExpert) std::swap(ids.front(), ids.back());
    for (int k = choice == Choice::kHotExpert ? 1 : 0; k < topk; ++k) {
      const auto left = static_cast<std::uint64_t>(experts - k);
      std::swap(ids[static_cast<std::size_t>(k)],
                ids[static_cast<std::size_t>(k) + random.bits(static_cast<std::uint64_t>(k)) % left]);
    }
    ids.resize(static_cast<std::size_t>(topk));
    return ids;
  }
  float weight(std::int64_t t, int k) const {
    return static_cast<float>(
        RandomStream(2 + round, static_cast<std::uint64_t>(t)).uniform(static_cast<std::uint64_t>(k)));
  }
  // `stream` tells tokens (0), gradients (1) and addends (2) apart.
  float value(std::uint64_t stream, std::int64_t t, std::int64_t j) const {
    return rounded(dtype, RandomStream(10 + round, stream * 1'000'003 + static_cast<std::uint64_t>(t))
                              .normal(static_cast<std::uint64_t>(j)));
  }
  // What expert e makes of x.
  float expert_output(int e, float x) const {
    return rounded(dtype, x * (1.0f + 0.25f * static_cast<float>(e)) + 0.5f);
  }

  int node_of(Rank rank) const { return ranks_per_node > 0 ? rank / ranks_per_node : 0; }
  // The sum of a token's terms, term(k) times weight(k), at the token's own rank: in top-k order, but two-level the
  // terms of another node are summed and rounded there, and stand in the place of the first of them.
  template <class Term, class Weight>
  float combined(Rank rank, std::int64_t t, Term term, Weight weight) const {
    const auto ids = chosen(t);
    const auto node = [&](int k) { return node_of(placement().owner(ids[static_cast<std::size_t>(k)])); };
    float sum = 0;
    bool first = true;
    const auto add = [&](float value) { sum = std::exchange(first, false) ? value : sum + value; };
    std::vector<int> done;
    for (int k = 0; k < topk; ++k) {
      if (algorithm != ExchangeAlgorithm::kTwoLevel || node(k) == node_of(rank)) {
        add(weight(k) * term(k));
        continue;
      }
      if (std::find(done.begin(), done.end(), node(k)) != done.end()) continue;
      done.push_back(node(k));
      float partial = weight(k) * term(k);
      for (int other = k + 1; other < topk; ++other) {
        if (node(other) == node(k)) partial += weight(other) * term(other);
      }
      add(fp32_sums ? partial : rounded(dtype, partial));
    }
    return sum;
  }

  RoutingTable routing(Rank rank) const {
    RoutingTable table;
    table.resize(tokens[static_cast<std::size_t>(rank)], topk);
    for (std::int64_t t = 0; t < table.tokens(); ++t) {
      const auto ids = chosen(first_token(rank) + t);
      for (int k = 0; k < topk; ++k) {
        table.expert()(t, k) = ids[static_cast<std::size_t>(k)];
        table.weight()(t, k) = weight(first_token(rank) + t, k);
      }
    }
    return table;
  }
  RowStore rows(std::uint64_t stream, Rank rank) const {
    RowStore store(dtype, tokens[static_cast<std::size_t>(rank)], hidden);
    for (std::int64_t t = 0; t < store.rows; ++t) {
      for (std::int64_t j = 0; j < hidden; ++j) {
        set_element(store.view(), t, j, value(stream, first_token(rank) + t, j));
      }
    }
    return store;
  }

  // The rows of a rank's batch in their order: expert by expert, inside an expert by global token.
  struct BatchRow {
    int expert;
    std::int64_t token;
    int k;
  };
  std::vector<BatchRow> batch_rows(Rank rank) const {
    std::vector<BatchRow> rows;
    for (std::int64_t t = 0; t < all_tokens(); ++t) {
      const auto ids = chosen(t);
      for (int k = 0; k < topk; ++k) {
        const int e = ids[static_cast<std::size_t>(k)];
        if (placement().owner(e) == rank) rows.push_back({e, t, k});
      }
    }
    std::stable_sort(rows.begin(), rows.end(),
                     [](const BatchRow& a, const BatchRow& b) { return a.expert < b.expert; });
    return rows;
  }
};

}  // namespace moetax::test
