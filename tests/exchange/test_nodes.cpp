// Conformance over ranks that share memory in part or not at all: every algorithm, shape and map of nodes.
#include <gtest/gtest.h>

#include "exchange/conformance.h"
#include "exchange/world.h"

namespace moetax::test {
namespace {

constexpr ExchangeAlgorithm kAlgorithms[] = {ExchangeAlgorithm::kFlat, ExchangeAlgorithm::kDirect,
                                             ExchangeAlgorithm::kRing, ExchangeAlgorithm::kMesh2d,
                                             ExchangeAlgorithm::kTwoLevel};

std::string algorithm_name(const testing::TestParamInfo<ExchangeAlgorithm>& info) {
  const std::string name = to_string(info.param);
  return name == "two-level" ? "two_level" : name;
}

class Nodes : public testing::TestWithParam<ExchangeAlgorithm> {
 protected:
  void run(Scenario s, int ranks_per_node, int rounds) {
    s.algorithm = GetParam();
    s.ranks_per_node = ranks_per_node;
    SCOPED_TRACE(name_of(s));
    on_threads(
        s.ranks(), [&](Communicator& comm) { run_scenario(comm, s, rounds); }, ranks_per_node);
  }
};

TEST_P(Nodes, EveryBitIsRight) {
  struct World {
    int ranks, ranks_per_node;
  };
  // One rank a node, equal nodes, uneven ones; rings of odd and even length, grids with and without a second row.
#if defined(__SANITIZE_THREAD__)
  const std::vector<World> worlds{{3, 1}, {4, 2}, {5, 2}};  // slow there, and races need few ranks
#else
  const std::vector<World> worlds{{2, 1}, {3, 1}, {4, 1}, {6, 1}, {4, 2}, {5, 2}, {8, 2}, {7, 3}, {8, 3}};
#endif
  for (const World world : worlds) {
    for (const Scenario& s : scenarios(world.ranks)) {
      run(s, world.ranks_per_node, 3);
      if (HasFailure()) return;
    }
  }
}

TEST_P(Nodes, ManyChunksArriveWhole) {
  run({.tokens = {700, 500, 20, 900}, .hidden = 1024, .experts = 8, .topk = 4, .threads = 2}, 2, 1);
}

TEST_P(Nodes, SumsMayComeBackUnrounded) {
  for (const DType dtype : {DType::kBf16, DType::kFp32}) {
    run({.tokens = {40, 31, 0, 64}, .hidden = 100, .experts = 12, .topk = 5, .dtype = dtype, .fp32_sums = true}, 2, 2);
  }
  run({.tokens = {300, 200, 20, 400}, .hidden = 1024, .experts = 8, .topk = 4, .fp32_sums = true}, 2, 1);
}

TEST_P(Nodes, ProcessesDoTheSame) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer runs a thread of its own, so ranks cannot be forked";
#endif
  const Scenario s{
      .tokens = {30, 21, 0, 44}, .hidden = 96, .experts = 12, .topk = 5, .ranks_per_node = 2, .algorithm = GetParam()};
  const auto outcomes = run_processes({.ranks = 4, .ranks_per_node = 2}, [&](Communicator& comm) {
    run_scenario(comm, s, 3);
    return testing::Test::HasFailure() ? 1 : 0;
  });
  ASSERT_TRUE(ok(outcomes));
  for (const RankOutcome& outcome : *outcomes) EXPECT_EQ(outcome.exit_status, 0) << "rank " << outcome.rank;
}

INSTANTIATE_TEST_SUITE_P(All, Nodes, testing::ValuesIn(kAlgorithms), algorithm_name);

// The weights of a two-level combine were sent with the rows.
TEST(NodesErrors, TwoLevelRefusesOtherWeights) {
  const Scenario s{.tokens = {6, 6},
                   .hidden = 8,
                   .experts = 4,
                   .topk = 4,
                   .ranks_per_node = 1,
                   .algorithm = ExchangeAlgorithm::kTwoLevel};
  on_threads(
      2,
      [&](Communicator& comm) {
        auto x = Exchange::create(comm, s.options(comm.rank()));
        ASSERT_TRUE(ok(x));
        RoutingTable routing = s.routing(comm.rank());
        auto sent = x->dispatch(s.rows(0, comm.rank()).view(), routing);
        ASSERT_TRUE(ok(sent));
        for (int k = 0; k < 4; ++k) routing.weight()(2, k) = 3.0f;
        RowStore out(DType::kBf16, 6, 8);
        const auto made = x->combine(std::move(sent->handle), routing, {}, out.view());
        ASSERT_FALSE(made);
        EXPECT_NE(made.error().message.find("the gate weights of token 2 are not those of its dispatch"),
                  std::string::npos);
      },
      1);
}

TEST(NodesErrors, TheAlgorithmChangesBetweenCallsNotDuringThem) {
  Scenario s{.tokens = {16, 9, 12, 3}, .hidden = 24, .experts = 8, .topk = 3, .ranks_per_node = 2};
  on_threads(
      4,
      [&](Communicator& comm) {
        Scenario mine = s;
        auto x = Exchange::create(comm, mine.options(comm.rank()));
        ASSERT_TRUE(ok(x));
        for (const ExchangeAlgorithm algorithm : kAlgorithms) {
          ASSERT_TRUE(ok(x->set_algorithm(algorithm)));
          mine.algorithm = algorithm;
          run_round(*x, mine, comm.rank());
        }
        // One that is slow may hear of another's error before its own.
        auto sent = x->dispatch(mine.rows(0, comm.rank()).view(), mine.routing(comm.rank()));
        const Result<void> refused = sent ? x->set_algorithm(ExchangeAlgorithm::kFlat) : Unexpected(sent.error());
        ASSERT_FALSE(refused);
        EXPECT_NE(refused.error().message.find("set_algorithm: a handle or layout is alive"), std::string::npos);
      },
      2);
}

TEST(NodesErrors, RanksThatDisagreeOnTheAlgorithm) {
  on_threads(2, [](Communicator& comm) {
    Scenario s{.tokens = {6, 6}, .hidden = 8, .experts = 4, .topk = 2};
    if (comm.rank() == 1) s.algorithm = ExchangeAlgorithm::kRing;
    const auto x = Exchange::create(comm, s.options(comm.rank()));
    ASSERT_FALSE(x);
    EXPECT_EQ(x.error().code, ErrorCode::kPeerFailed);
    EXPECT_NE(x.error().message.find("rank 1 has H=8 E=4 K=2 bf16 ring"), std::string::npos) << x.error().message;
  });
}

}  // namespace
}  // namespace moetax::test
