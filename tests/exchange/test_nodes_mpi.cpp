// The exchange over MPI: what crosses between nodes goes through it, the rest through shared memory.
#include <gtest/gtest.h>

#include "exchange/conformance.h"
#include "transport/mpi_main.h"

namespace moetax::test {
namespace {

class MpiNodes : public testing::TestWithParam<ExchangeAlgorithm> {};

TEST_P(MpiNodes, EveryBitIsRight) {
  struct World {
    int ranks, ranks_per_node;
  };
  for (const World world : {World{2, 1}, {4, 0}, {4, 2}, {6, 1}, {7, 3}, {8, 2}}) {
    if (world.ranks > testing_mpi::num_processes()) continue;
    const auto outcomes = testing_mpi::run_on(
        world.ranks, {.ranks_per_node = world.ranks_per_node, .setup_s = 60, .linger_s = 60}, [&](Communicator& comm) {
          for (Scenario s : scenarios(world.ranks)) {
            s.algorithm = GetParam();
            s.ranks_per_node = world.ranks_per_node;
            run_scenario(comm, s, 2);
            if (HasFailure()) {
              std::fprintf(stderr, "rank %d: %s\n", comm.rank(), name_of(s).c_str());
              return 1;
            }
          }
          return 0;
        });
    ASSERT_TRUE(ok(outcomes));
    for (const RankOutcome& outcome : *outcomes) EXPECT_EQ(outcome.exit_status, 0) << "rank " << outcome.rank;
  }
}

// More than MPI sends at once without asking the receiver.
TEST_P(MpiNodes, ManyChunksArriveWhole) {
  const Scenario s{.tokens = {700, 500, 20, 900},
                   .hidden = 1024,
                   .experts = 8,
                   .topk = 4,
                   .ranks_per_node = 2,
                   .algorithm = GetParam()};
  const auto outcomes =
      testing_mpi::run_on(4, {.ranks_per_node = 2, .setup_s = 60, .linger_s = 60}, [&](Communicator& comm) {
        run_scenario(comm, s, 1);
        return HasFailure() ? 1 : 0;
      });
  ASSERT_TRUE(ok(outcomes));
  for (const RankOutcome& outcome : *outcomes) EXPECT_EQ(outcome.exit_status, 0) << "rank " << outcome.rank;
}

INSTANTIATE_TEST_SUITE_P(All, MpiNodes,
                         testing::Values(ExchangeAlgorithm::kFlat, ExchangeAlgorithm::kDirect, ExchangeAlgorithm::kRing,
                                         ExchangeAlgorithm::kMesh2d, ExchangeAlgorithm::kTwoLevel));

}  // namespace
}  // namespace moetax::test
