// Conformance over ranks as forked processes. A program of its own: forking needs a process without threads.
#include <gtest/gtest.h>

#include "exchange/conformance.h"
#include "moetax/transport/local.h"

namespace moetax::test {
namespace {

class ProcessRanks : public testing::TestWithParam<int> {};

TEST_P(ProcessRanks, EveryBitIsRight) {
  for (const Scenario& s : scenarios(GetParam())) {
    SCOPED_TRACE(name_of(s));
    const auto outcomes = run_processes({.ranks = GetParam()}, [&](Communicator& comm) {
      run_scenario(comm, s, 2);
      return HasFailure() ? 1 : 0;
    });
    ASSERT_TRUE(ok(outcomes));
    for (const RankOutcome& outcome : *outcomes) EXPECT_EQ(outcome.exit_status, 0) << "rank " << outcome.rank;
  }
}

TEST_P(ProcessRanks, EveryBitIsRightWithTwoThreadsEach) {
  Scenario s{.tokens = std::vector<std::int64_t>(static_cast<std::size_t>(GetParam()), 90),
             .hidden = 72,
             .experts = 12,
             .topk = 5,
             .threads = 2};
  const auto outcomes = run_processes({.ranks = GetParam()}, [&](Communicator& comm) {
    run_scenario(comm, s, 2);
    return HasFailure() ? 1 : 0;
  });
  ASSERT_TRUE(ok(outcomes));
  for (const RankOutcome& outcome : *outcomes) EXPECT_EQ(outcome.exit_status, 0) << "rank " << outcome.rank;
}

INSTANTIATE_TEST_SUITE_P(Ranks, ProcessRanks, testing::Values(1, 2, 4));

}  // namespace
}  // namespace moetax::test
