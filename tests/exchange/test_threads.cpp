// Conformance over ranks as threads: every shape, every number of ranks.
#include <gtest/gtest.h>

#include <cstring>
#include <type_traits>

#include "exchange/conformance.h"
#include "exchange/world.h"

namespace moetax::test {
namespace {

static_assert(!std::is_copy_constructible_v<DispatchHandle> && !std::is_copy_assignable_v<DispatchHandle>,
              "a handle is combined once");
static_assert(!std::is_convertible_v<DispatchHandle&, DispatchHandle>, "combine(handle) needs std::move");
static_assert(std::is_nothrow_move_constructible_v<DispatchHandle>);
static_assert(!std::is_copy_constructible_v<DispatchLayout> && !std::is_copy_constructible_v<Exchange>);

class ThreadRanks : public testing::TestWithParam<Scenario> {};

TEST_P(ThreadRanks, EveryBitIsRight) {
  on_threads(GetParam().ranks(), [&](Communicator& comm) { run_scenario(comm, GetParam(), 3); });
}

std::vector<Scenario> all_scenarios() {
  std::vector<Scenario> all;
  for (const int ranks : {1, 2, 3, 4, 8}) {
    for (const Scenario& s : scenarios(ranks)) all.push_back(s);
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Shapes, ThreadRanks, testing::ValuesIn(all_scenarios()),
                         [](const auto& scenario) { return name_of(scenario.param); });

// Enough rows that they are streamed around the cache, on rows whose size is and is not a multiple of a line.
TEST(ThreadRanksLarge, StreamedRowsAreRight) {
  for (const std::int64_t hidden : {2048, 2051}) {
    const Scenario s{.tokens = {700, 500}, .hidden = hidden, .experts = 8, .topk = 4};
    on_threads(2, [&](Communicator& comm) { run_scenario(comm, s, 1); });
  }
}

// What a rank computes does not depend on how the same global tokens are spread over ranks.
TEST(ThreadRanksTogether, OutputsHaveTheSameBitsForAnyNumberOfRanks) {
  std::vector<std::byte> reference;
  for (const int ranks : {1, 2, 4, 8}) {
    const Scenario s{.tokens = std::vector<std::int64_t>(static_cast<std::size_t>(ranks), 48 / ranks),
                     .hidden = 96,
                     .experts = 12,
                     .topk = 5};
    std::vector<std::byte> output(static_cast<std::size_t>(48 * s.hidden) * size_of(s.dtype));
    on_threads(ranks, [&](Communicator& comm) {
      const Rank rank = comm.rank();
      auto x = Exchange::create(comm, s.options(rank));
      ASSERT_TRUE(ok(x));
      const RoutingTable routing = s.routing(rank);
      auto sent = x->dispatch(s.rows(0, rank).view(), routing);
      ASSERT_TRUE(ok(sent));
      run_experts(s, rank, sent->batch);
      const Rows mine = Rows{output.data(), s.dtype, 48, s.hidden}.slice(s.first_token(rank), 48 / ranks);
      ASSERT_TRUE(ok(x->combine(std::move(sent->handle), routing, s.rows(2, rank).view(), mine)));
    });
    if (reference.empty()) reference = output;
    EXPECT_EQ(output, reference) << ranks << " ranks";
  }
}

TEST(ThreadRanksTogether, TwoHandlesInFlightKeepTheirRows) {
  Scenario first{.tokens = {11, 7}, .hidden = 32, .experts = 6, .topk = 2};
  Scenario second = first;
  on_threads(2, [&](Communicator& comm) {
    const Rank rank = comm.rank();
    ExchangeOptions options = first.options(rank);
    options.in_flight = 2;
    auto x = Exchange::create(comm, options);
    ASSERT_TRUE(ok(x));
    for (std::uint64_t round = 0; round < 6; round += 2) {
      Scenario a = first, b = second;
      a.round = round;
      b.round = round + 1;
      const RoutingTable routing_a = a.routing(rank), routing_b = b.routing(rank);
      auto sent_a = x->dispatch(a.rows(0, rank).view(), routing_a);
      ASSERT_TRUE(ok(sent_a));
      auto sent_b = x->dispatch(b.rows(0, rank).view(), routing_b);
      ASSERT_TRUE(ok(sent_b));
      EXPECT_EQ(wrong_rows(a, rank, 0, sent_a->batch.rows), 0);
      EXPECT_EQ(wrong_rows(b, rank, 0, sent_b->batch.rows), 0);
      run_experts(a, rank, sent_a->batch);
      run_experts(b, rank, sent_b->batch);
      RowStore out(a.dtype, a.tokens[static_cast<std::size_t>(rank)], a.hidden);
      // Given back in the other order every second time.
      const auto combine = [&](const Scenario& s, Dispatched& sent, const RoutingTable& routing) {
        ASSERT_TRUE(ok(x->combine(std::move(sent.handle), routing, {}, out.view())));
        EXPECT_EQ(out.bytes, expected_output(s, rank, false).bytes);
      };
      if (round % 4 == 0) combine(a, *sent_a, routing_a);
      combine(b, *sent_b, routing_b);
      if (round % 4 != 0) combine(a, *sent_a, routing_a);
    }
  });
}

TEST(ThreadRanksTogether, ExchangesOnOneCommunicatorDoNotDisturbEachOther) {
  const Scenario s{.tokens = {5, 6}, .hidden = 16, .experts = 4, .topk = 2};
  on_threads(2, [&](Communicator& comm) {
    auto x = Exchange::create(comm, s.options(comm.rank()));
    auto y = Exchange::create(comm, s.options(comm.rank()));
    ASSERT_TRUE(ok(x) && ok(y));
    for (int round = 0; round < 3; ++round) {
      run_round(*x, s, comm.rank());
      run_round(*y, s, comm.rank());
    }
  });
}

// <dispatch_all(x), y> = <x, combine_grad(y)>: the gradient is the transpose. Small integers make both sums exact.
TEST(ThreadRanksTogether, CombineGradIsTheTransposeOfDispatch) {
  const Scenario s{.tokens = {9, 0, 14}, .hidden = 24, .experts = 7, .topk = 3};
  std::vector<double> left(3), right(3);
  const auto small = [](std::uint64_t stream, std::int64_t i, std::int64_t j) {
    return static_cast<float>(
        static_cast<int>(RandomStream(5, stream).bits(static_cast<std::uint64_t>(i * 64 + j)) % 9) - 4);
  };
  on_threads(3, [&](Communicator& comm) {
    const Rank rank = comm.rank();
    const auto r = static_cast<std::size_t>(rank);
    auto x = Exchange::create(comm, s.options(rank));
    ASSERT_TRUE(ok(x));
    RowStore tokens(s.dtype, s.tokens[r], s.hidden);
    for (std::int64_t t = 0; t < tokens.rows; ++t) {
      for (std::int64_t j = 0; j < s.hidden; ++j) set_element(tokens.view(), t, j, small(10 + r, t, j));
    }
    auto sent = x->dispatch(tokens.view(), s.routing(rank));
    ASSERT_TRUE(ok(sent));
    const ExpertBatch& batch = sent->batch;
    for (std::int64_t i = 0; i < batch.rows.rows; ++i) {
      for (std::int64_t j = 0; j < s.hidden; ++j) {
        const float y = small(20 + r, i, j);
        set_element(batch.out, i, j, y);
        left[r] += static_cast<double>(element(batch.rows, i, j)) * y;
      }
    }
    const std::vector<float> d_gate(static_cast<std::size_t>(batch.rows.rows));
    std::vector<float> d_tokens(static_cast<std::size_t>(tokens.rows * s.hidden));
    std::vector<float> d_weight(static_cast<std::size_t>(tokens.rows * s.topk));
    ASSERT_TRUE(ok(x->combine_grad(std::move(sent->handle), d_gate, {d_tokens.data(), tokens.rows, s.hidden},
                                   {d_weight.data(), tokens.rows, s.topk})));
    for (std::int64_t t = 0; t < tokens.rows; ++t) {
      for (std::int64_t j = 0; j < s.hidden; ++j) {
        right[r] += static_cast<double>(small(10 + r, t, j)) * d_tokens[static_cast<std::size_t>(t * s.hidden + j)];
      }
    }
  });
  EXPECT_EQ(left[0] + left[1] + left[2], right[0] + right[1] + right[2]);
  EXPECT_NE(left[0], 0);
}

TEST(ThreadRanksTogether, MemoryIsReservedForTheWorstCaseAndTakenWhenUsed) {
  on_threads(2, [](Communicator& comm) {
    const ExchangeOptions options{.max_tokens = 4096, .hidden = 2048, .experts = 64, .topk = 6, .deadline_s = 60};
    auto x = Exchange::create(comm, options);
    ASSERT_TRUE(ok(x));
    const std::size_t worst = std::size_t{2} * 4096 * 6 * 4096;  // rows in, and as much for the results
    EXPECT_GE(x->reserved_bytes(), 2 * worst);
    const Scenario s{.tokens = {4, 4}, .hidden = 2048, .experts = 64, .topk = 6};
    run_round(*x, s, comm.rank());
    EXPECT_GT(x->touched_bytes(), 0u);
    EXPECT_LT(x->touched_bytes(), worst / 10);
  });
}

}  // namespace
}  // namespace moetax::test
