// The conformance suite over MPI. On one machine all ranks share a node, so nodes are also made by decree: then flags,
// offers, news and messages go through MPI.
#include <unistd.h>

#include "conformance.h"
#include "mpi_main.h"

namespace moetax {
namespace {

Result<std::vector<RankOutcome>> run(const LocalOptions& options, const RankBody& body) {
  return testing_mpi::run_on(options.ranks, {.ranks_per_node = options.ranks_per_node, .setup_s = 60, .linger_s = 60},
                             body);
}

const Launcher kOneNode{"mpi", run, ""};
const Launcher kNodesOfTwo{"mpi_nodes_of_two", run, "", 2};
const Launcher kNodesOfOne{"mpi_nodes_of_one", run, "", 1};

INSTANTIATE_CONFORMANCE(Mpi, &kOneNode, &kNodesOfTwo, &kNodesOfOne);

// ---- What only MPI has --------------------------------------------------------------------------------------------

void expect_all_zero(const std::vector<RankOutcome>& outcomes) {
  for (const RankOutcome& outcome : outcomes) EXPECT_EQ(outcome.exit_status, 0) << "rank " << outcome.rank;
}

// All processes read one clock, whatever node they are said to be on.
TEST(Mpi, TheClocksOfOneMachineAreFoundToAgree) {
  const auto outcomes = run({testing_mpi::num_processes(), 2}, [](Communicator& comm) {
    for (const Rank peer : comm.everyone()) {
      REQUIRE(std::abs(comm.clock_offset_ns(peer)) < 50'000'000);
      REQUIRE(!comm.shares_memory(peer) || comm.clock_offset_ns(peer) == 0);
    }
    return 0;
  });
  ASSERT_TRUE(outcomes) << outcomes.error().message;
  expect_all_zero(*outcomes);
}

TEST(Mpi, ErrorsNameNodeAndHost) {
  if (testing_mpi::num_processes() < 3) GTEST_SKIP() << "needs 3 processes";
  const auto outcomes = run({3, 2}, [](Communicator& comm) {
    char host[256] = {};
    gethostname(host, sizeof host - 1);
    const std::string named = "rank 2 (node 1, host " + std::string(host) + ")";
    if (comm.rank() == 2) {
      comm.fail({ErrorCode::kBadInput, "out of paper"});
      return 0;
    }
    const auto wait = comm.wait(Channel::kRows, std::array{2}, 1, {"rows", 1}, patience());
    REQUIRE(!wait && wait.error().rank == 2);
    REQUIRE(wait.error().message == named + " stopped: out of paper");
    return 0;
  });
  ASSERT_TRUE(outcomes) << outcomes.error().message;
  expect_all_zero(*outcomes);
}

// Contexts are agreed on without MPI: parts of parts, of different sizes on different ranks, never mix their traffic.
TEST(Mpi, TrafficOfManyPartsStaysApart) {
  const auto outcomes = run({testing_mpi::num_processes(), 1}, [](Communicator& comm) {
    std::vector<std::unique_ptr<Communicator>> parts;
    for (int i = 0; i < 4; ++i) {
      Communicator& from = parts.empty() || i % 2 == 0 ? comm : *parts.back();
      auto part = from.split(i == 1 ? from.rank() % 2 : 0, patience());
      REQUIRE_OK(part);
      parts.push_back(std::move(*part));
    }
    for (std::uint64_t round = 1; round <= 20; ++round) {
      std::vector<std::uint64_t> mail(parts.size() * static_cast<std::size_t>(comm.size())), mine(parts.size());
      std::vector<std::vector<Message>> messages(parts.size());
      for (std::size_t i = parts.size(); i-- > 0;) {
        mine[i] = round * 100 + i;
        for (const Rank peer : parts[i]->everyone()) {
          if (peer == parts[i]->rank()) continue;
          auto& room = mail[i * static_cast<std::size_t>(comm.size()) + static_cast<std::size_t>(peer)];
          messages[i].push_back(parts[i]->receive(peer, std::as_writable_bytes(std::span(&room, 1))));
          messages[i].push_back(parts[i]->send(peer, std::as_bytes(std::span(&mine[i], 1))));
        }
      }
      for (std::size_t i = 0; i < parts.size(); ++i) {
        REQUIRE_OK(parts[i]->finish(messages[i], {"mail", round}, patience()));
        for (const Rank peer : parts[i]->everyone()) {
          if (peer == parts[i]->rank()) continue;
          REQUIRE(mail[i * static_cast<std::size_t>(comm.size()) + static_cast<std::size_t>(peer)] == mine[i]);
        }
      }
    }
    return 0;
  });
  ASSERT_TRUE(outcomes) << outcomes.error().message;
  expect_all_zero(*outcomes);
}

TEST(Mpi, ACommunicatorCanBeHandedIn) {
  auto world = join_mpi(MPI_COMM_WORLD);
  ASSERT_TRUE(world) << world.error().message;
  EXPECT_EQ((*world)->transport(), "mpi");
  EXPECT_EQ((*world)->size(), testing_mpi::num_processes());
  auto collectives = Collectives::create(**world, patience());
  ASSERT_TRUE(collectives);
  EXPECT_TRUE(collectives->barrier("together", patience()));
}

TEST(Mpi, WhatIsNoCommunicatorIsRefused) {
  const auto world = join_mpi(MPI_COMM_NULL);
  ASSERT_FALSE(world);
  EXPECT_EQ(world.error().code, ErrorCode::kUsage);
}

// The rank that does not join is named by rank 0, in time.
TEST(Mpi, ARankThatDoesNotJoinEndsTheSetUpByItsDeadline) {
  if (testing_mpi::num_processes() < 2) GTEST_SKIP() << "needs 2 processes";
  int self = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &self);
  MPI_Comm own = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &own);
  if (self != 1) {
    const std::int64_t start = now_ns();
    const auto world = join_mpi(own, {.setup_s = 0.2});
    ASSERT_FALSE(world);
    EXPECT_EQ(world.error().code, ErrorCode::kPeerFailed);
    EXPECT_LT(now_ns() - start, 20'000'000'000);
  }
  MPI_Barrier(MPI_COMM_WORLD);  // its duplicate stays unfinished, which MPI_Finalize takes
}

}  // namespace
}  // namespace moetax
