// One full round of an exchange as one rank sees it, every bit checked. The same for threads and processes.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <utility>

#include "exchange/scenario.h"

namespace moetax::test {

inline ::testing::AssertionResult ok(const auto& result) {
  if (result) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << result.error().message;
}

// Number of elements of `batch` that are not stream `stream` of the tokens they should be.
inline std::int64_t wrong_rows(const Scenario& s, Rank rank, std::uint64_t stream, ConstRows rows) {
  const auto expected = s.batch_rows(rank);
  if (rows.rows != static_cast<std::int64_t>(expected.size())) return -1;
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < rows.rows; ++i) {
    for (std::int64_t j = 0; j < s.hidden; ++j) {
      wrong += element(rows, i, j) != s.value(stream, expected[static_cast<std::size_t>(i)].token, j);
    }
  }
  return wrong;
}

inline void check_counts(const Scenario& s, Rank rank, const ExpertBatch& batch) {
  const ExpertPlacement placement = s.placement();
  ASSERT_EQ(batch.count.size(), static_cast<std::size_t>(placement.count(rank)));
  std::vector<std::int32_t> expected(batch.count.size(), 0);
  for (const auto& row : s.batch_rows(rank)) ++expected[static_cast<std::size_t>(placement.local_index(row.expert))];
  EXPECT_EQ(std::vector<std::int32_t>(batch.count.begin(), batch.count.end()), expected);
}

// Writes what the experts make of the batch into batch.out.
inline void run_experts(const Scenario& s, Rank rank, const ExpertBatch& batch) {
  const auto rows = s.batch_rows(rank);
  for (std::int64_t i = 0; i < batch.rows.rows; ++i) {
    const int e = rows[static_cast<std::size_t>(i)].expert;
    for (std::int64_t j = 0; j < s.hidden; ++j) {
      set_element(batch.out, i, j, s.expert_output(e, element(batch.rows, i, j)));
    }
  }
}

// The combined output of this rank's tokens, from the definition; rounded where the exchange rounds.
inline RowStore expected_output(const Scenario& s, Rank rank, bool with_addend) {
  RowStore out(s.dtype, s.tokens[static_cast<std::size_t>(rank)], s.hidden);
  for (std::int64_t i = 0; i < out.rows; ++i) {
    const std::int64_t t = s.first_token(rank) + i;
    const auto ids = s.chosen(t);
    for (std::int64_t j = 0; j < s.hidden; ++j) {
      float sum = s.combined(
          rank, t, [&](int k) { return s.expert_output(ids[static_cast<std::size_t>(k)], s.value(0, t, j)); },
          [&](int k) { return s.weight(t, k); });
      if (with_addend) sum += s.value(2, t, j);
      set_element(out.view(), i, j, sum);
    }
  }
  return out;
}

inline void check_grad_output(const Scenario& s, Rank rank, MatrixView<const float> d_tokens,
                              MatrixView<const float> d_weight) {
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < d_tokens.rows; ++i) {
    const std::int64_t t = s.first_token(rank) + i;
    const auto ids = s.chosen(t);
    for (std::int64_t j = 0; j < s.hidden; ++j) {
      const float sum = s.combined(
          rank, t, [&](int k) { return s.expert_output(ids[static_cast<std::size_t>(k)], s.value(1, t, j)); },
          [](int) { return 1.0f; });
      wrong += d_tokens(i, j) != sum;
    }
    // The d_gate of a row is its token's number and its k, see run_round.
    for (int k = 0; k < s.topk; ++k) wrong += d_weight(i, k) != static_cast<float>(t * s.topk + k);
  }
  EXPECT_EQ(wrong, 0) << "combine_grad on rank " << rank;
}

inline void run_forward(Exchange& x, const Scenario& s, Rank rank, DispatchLayout& layout) {
  const RoutingTable routing = s.routing(rank);
  const RowStore tokens = s.rows(0, rank), addend = s.rows(2, rank);
  const bool with_addend = s.round % 2 == 1;
  auto sent = x.dispatch(tokens.view(), routing);
  ASSERT_TRUE(ok(sent));
  check_counts(s, rank, sent->batch);
  EXPECT_EQ(wrong_rows(s, rank, 0, sent->batch.rows), 0) << "dispatch on rank " << rank;
  EXPECT_TRUE(sent->batch.weight.empty());
  run_experts(s, rank, sent->batch);
  RowStore out(s.dtype, tokens.rows, s.hidden);
  auto kept = x.combine(std::move(sent->handle), routing, with_addend ? addend.view() : ConstRows{}, out.view());
  ASSERT_TRUE(ok(kept));
  EXPECT_EQ(out.bytes, expected_output(s, rank, with_addend).bytes) << "combine on rank " << rank;
  layout = std::move(*kept);
  EXPECT_EQ(layout.tokens(), tokens.rows);
}

inline void run_backward(Exchange& x, const Scenario& s, Rank rank, const DispatchLayout& layout) {
  const RoutingTable routing = s.routing(rank);
  const RowStore d_out = s.rows(1, rank);
  auto sent = x.dispatch_grad(layout, routing, d_out.view());
  ASSERT_TRUE(ok(sent));
  EXPECT_EQ(wrong_rows(s, rank, 1, sent->batch.rows), 0) << "dispatch_grad on rank " << rank;
  const auto rows = s.batch_rows(rank);
  ASSERT_EQ(sent->batch.weight.size(), rows.size());
  std::vector<float> d_gate;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(sent->batch.weight[i], s.weight(rows[i].token, rows[i].k));
    d_gate.push_back(static_cast<float>(rows[i].token * s.topk + rows[i].k));
  }
  run_experts(s, rank, sent->batch);
  std::vector<float> d_tokens(static_cast<std::size_t>(d_out.rows * s.hidden));
  std::vector<float> d_weight(static_cast<std::size_t>(d_out.rows * s.topk));
  const MatrixView<float> d_tokens_view(d_tokens.data(), d_out.rows, s.hidden);
  const MatrixView<float> d_weight_view(d_weight.data(), d_out.rows, s.topk);
  ASSERT_TRUE(ok(x.combine_grad(std::move(sent->handle), d_gate, d_tokens_view, d_weight_view)));
  check_grad_output(s, rank, d_tokens_view, d_weight_view);
}

inline void run_round(Exchange& x, const Scenario& s, Rank rank) {
  DispatchLayout layout;
  run_forward(x, s, rank, layout);
  if (::testing::Test::HasFatalFailure()) return;
  // Recomputing activations: the same rows again, without routing.
  auto again = x.redispatch(layout, s.rows(0, rank).view());
  ASSERT_TRUE(ok(again));
  EXPECT_EQ(wrong_rows(s, rank, 0, again->batch.rows), 0) << "redispatch on rank " << rank;
  ASSERT_TRUE(ok(x.release(std::move(again->handle))));
  run_backward(x, s, rank, layout);
}

// A few rounds over one exchange, so that buffers and layouts are used again.
inline void run_scenario(Communicator& comm, Scenario s, int rounds) {
  auto x = Exchange::create(comm, s.options(comm.rank()));
  ASSERT_TRUE(ok(x));
  for (int round = 0; round < rounds; ++round) {
    s.round = static_cast<std::uint64_t>(round);
    run_round(*x, s, comm.rank());
    if (::testing::Test::HasFailure()) return;
  }
}

inline std::string name_of(const Scenario& s) {
  const std::string nodes = s.ranks_per_node > 0 ? fmt::format("of{}_", s.ranks_per_node) : "";
  return fmt::format("R{}_{}T{}_H{}_E{}_K{}_{}{}", s.ranks(), nodes, fmt::join(s.tokens, "_"), s.hidden, s.experts,
                     s.topk, to_string(s.dtype), s.choice == Choice::kHotExpert ? "_hot" : "");
}

// Shapes that are ordinary, odd or extreme, for `ranks` ranks.
inline std::vector<Scenario> scenarios(int ranks) {
  const auto equal = [&](std::int64_t t) { return std::vector<std::int64_t>(static_cast<std::size_t>(ranks), t); };
  std::vector<std::int64_t> mixed;
  for (int r = 0; r < ranks; ++r) mixed.push_back(r % 2 == 1 ? 0 : 3 + 5 * r);
  std::vector<std::int64_t> few_and_many = mixed;  // the ones are offered, the others pushed
  few_and_many.front() = 300;
  return {
      {.tokens = equal(13), .hidden = 64, .experts = 16, .topk = 4},
      {.tokens = equal(40), .hidden = 7, .experts = 10, .topk = 3, .dtype = DType::kFp32},
      {.tokens = mixed, .hidden = 2880, .experts = 13, .topk = 8},
      {.tokens = mixed, .hidden = 65, .experts = 13, .topk = 1, .dtype = DType::kFp32},
      {.tokens = equal(9), .hidden = 64, .experts = 3, .topk = 2},  // more ranks than experts, from 4 ranks on
      {.tokens = equal(21), .hidden = 64, .experts = 16, .topk = 1, .choice = Choice::kHotExpert},
      {.tokens = equal(21), .hidden = 33, .experts = 16, .topk = 6, .choice = Choice::kHotExpert},
      {.tokens = equal(0), .hidden = 64, .experts = 16, .topk = 4},
      {.tokens = equal(5), .hidden = 64, .experts = 6, .topk = 6},  // every expert
      {.tokens = equal(260), .hidden = 40, .experts = 13, .topk = 4},
      {.tokens = few_and_many, .hidden = 33, .experts = 11, .topk = 3, .dtype = DType::kFp32},
      {.tokens = few_and_many, .hidden = 64, .experts = 8, .topk = 4, .choice = Choice::kHotExpert},
  };
}

}  // namespace moetax::test
