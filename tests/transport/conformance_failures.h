// Parts of a communicator, and peers that do not come. Part of conformance.h.
#pragma once

#include "transport/conformance_base.h"

namespace moetax {

// ---- Split --------------------------------------------------------------------------------------------------------

TEST_P(Conformance, SplitGroupsByColorInRankOrder) {
  expect_all_zero(
      [](Communicator& comm) {
        auto part = comm.split(-(comm.rank() % 2), patience());  // colors may be any number
        REQUIRE_OK(part);
        Communicator& half = **part;
        REQUIRE(half.size() == (comm.size() + 1 - comm.rank() % 2) / 2);
        REQUIRE(half.rank() == comm.rank() / 2);
        for (const Rank peer : half.everyone()) {
          REQUIRE(half.world_rank(peer) == 2 * peer + comm.rank() % 2);
          REQUIRE(half.node_of(peer) == comm.node_of(half.world_rank(peer)));
        }
        auto collectives = Collectives::create(half, patience());
        REQUIRE_OK(collectives);
        auto world = Collectives::create(comm, patience());
        REQUIRE_OK(world);
        for (int round = 0; round < 20; ++round) {
          std::vector<float> sum{static_cast<float>(comm.rank() + 1)};
          REQUIRE_OK(collectives->all_reduce_sum("reduce", sum, patience(), nullptr));
          float expected = 0;
          for (const Rank peer : half.everyone()) expected += static_cast<float>(half.world_rank(peer) + 1);
          REQUIRE(sum[0] == expected);
          if (round % 5 == 0) REQUIRE_OK(world->barrier("all", patience()));
        }
        auto alone = half.split(half.rank(), patience());
        REQUIRE_OK(alone);
        REQUIRE((*alone)->size() == 1 && (*alone)->world_rank(0) == comm.rank());
        return 0;
      },
      3);
}

TEST_P(ConformanceOfFour, ErrorsInAPartSpeakOfRanksOfTheWorld) {
  expect_all_zero([](Communicator& comm) {
    auto part = comm.split(comm.rank() % 2, patience());
    REQUIRE_OK(part);
    Communicator& half = **part;
    comm.post(Channel::kCollective, 3, 1);
    if (comm.rank() == 3) {  // rank 1 of the odd half; fails when all others have their half
      REQUIRE_OK(comm.wait(Channel::kCollective, comm.everyone(), 1, {"split", 1}, patience()));
      comm.fail({ErrorCode::kInternal, "out of paper"});
      return 0;
    }
    const auto wait = half.wait(Channel::kRows, half.everyone(), 1, {"rows", 1}, patience());
    REQUIRE(!wait && wait.error().rank == 3);
    REQUIRE_TEXT(wait.error().message, "rank 3 stopped: out of paper");
    return 0;
  });
}

// ---- Peers that do not come ---------------------------------------------------------------------------------------

TEST_P(ConformanceOfTwo, ADeadlineNamesWhoIsMissingAndWhoCame) {
  expect_all_zero([](Communicator& comm) {
    const Rank late = comm.size() - 1;
    const auto punctual = comm.everyone().first(static_cast<std::size_t>(late));
    if (comm.rank() == late) {
      // Enters combine #16, then stays there until the others have given up on dispatch #17.
      REQUIRE_OK(comm.wait(Channel::kCollective, std::array{late}, 1, {"combine", 16}, patience()));
      for (const Rank peer : punctual) comm.post(Channel::kCall, peer, 1);
      REQUIRE_OK(comm.wait(Channel::kCollective, punctual, 1, {"combine", 16}, patience()));
      return 0;
    }
    for (const Rank peer : comm.everyone()) comm.post(Channel::kRows, peer, 1);
    REQUIRE_OK(comm.wait(Channel::kCall, std::array{late}, 1, {"dispatch", 17}, patience()));
    REQUIRE_OK(comm.wait(Channel::kRows, punctual, 1, {"dispatch", 17}, patience()));
    const auto wait = comm.wait(Channel::kRows, comm.everyone(), 1, {"dispatch", 17}, Deadline::in_seconds(0.2));
    comm.post(Channel::kCollective, late, 1);
    REQUIRE(!wait && wait.error().code == ErrorCode::kPeerFailed && wait.error().rank == late);
    const std::string present = late == 1 ? "rank 0" : "ranks 0-" + std::to_string(late - 1);
    REQUIRE_TEXT(wait.error().message,
                 "rank " + std::to_string(late) +
                     " did not arrive at dispatch #17 within 0.2 s (it was last at combine #16); " + present + " did");
    return 0;
  });
}

TEST_P(ConformanceOfThree, ADeadlineNamesAllWhoAreMissing) {
  expect_all_zero([](Communicator& comm) {
    if (comm.rank() != 0) {
      REQUIRE_OK(comm.wait(Channel::kCollective, std::array{0}, 1, {"end", 1}, patience()));
      return 0;
    }
    const auto wait = comm.wait(Channel::kRows, comm.everyone(), 1, {"dispatch", 1}, Deadline::in_seconds(0.05));
    for (const Rank peer : comm.everyone()) comm.post(Channel::kCollective, peer, 1);
    REQUIRE(!wait && wait.error().rank == 1);
    REQUIRE_TEXT(wait.error().message, "ranks 1-" + std::to_string(comm.size() - 1) +
                                           " did not arrive at dispatch #1 within 0.05 s; rank 0 did");
    return 0;
  });
}

TEST_P(ConformanceOfTwo, ARankThatReturnsEarlyIsNamed) {
  const auto outcomes = run([](Communicator& comm) {
    if (comm.rank() == 1) return 9;
    const auto wait = comm.wait(Channel::kRows, std::array{1}, 1, {"rows", 4}, patience());
    REQUIRE(!wait && wait.error().code == ErrorCode::kPeerFailed && wait.error().rank == 1);
    REQUIRE_TEXT(wait.error().message, "rank 1 finished with exit status 9 before it arrived at rows #4");
    return 0;
  });
  for (const RankOutcome& outcome : outcomes) EXPECT_EQ(outcome.exit_status, outcome.rank == 1 ? 9 : 0);
}

// The others post and return at once, rank 1 a little later: rank 0 learns of their ends while it waits for rank 1.
TEST_P(ConformanceOfTwo, WhatARankPostedBeforeItReturnedStillCounts) {
  expect_all_zero([](Communicator& comm) {
    if (comm.rank() == 1) sleep_ms(20);
    comm.post(Channel::kRows, 0, 1);
    if (comm.rank() != 0) return 0;
    REQUIRE_OK(comm.wait(Channel::kRows, comm.everyone(), 1, {"rows", 1}, patience()));
    return 0;
  });
}

// Rank 1 fails; rank 0 waits for it, the others for each other. All of them end at once and name rank 1, also those
// that hear of it from a rank that failed in consequence.
TEST_P(ConformanceOfTwo, AFailureEndsAllWaitsAndNamesItsOrigin) {
  expect_all_zero([](Communicator& comm) {
    if (comm.rank() == 1) {
      comm.fail({ErrorCode::kBadInput, "token 3 has a NaN logit"});
      comm.fail({ErrorCode::kInternal, "the first error counts"});
      return 0;
    }
    const auto wait = comm.wait(Channel::kRows, comm.everyone(), 1, {"rows", 1}, patience());
    REQUIRE(!wait && wait.error().code == ErrorCode::kPeerFailed && wait.error().rank == 1);
    REQUIRE_TEXT(wait.error().message, "rank 1 stopped: token 3 has a NaN logit");
    comm.fail(wait.error());
    return 0;
  });
}

// Rank 1 gives up on rank 2, which is merely late. Rank 0 hears of it from rank 1 and must name rank 2.
TEST_P(ConformanceOfThree, AFailureNamesTheCulpritNotTheMessenger) {
  expect_all_zero([](Communicator& comm) {
    if (comm.rank() == 1) {
      const auto wait = comm.wait(Channel::kRows, std::array{2}, 1, {"rows", 1}, Deadline::in_seconds(0.05));
      REQUIRE(!wait);
      comm.fail(wait.error());
      return 0;
    }
    const auto wait = comm.wait(Channel::kCall, std::array{1}, 1, {"ready", 1}, patience());
    REQUIRE(!wait && wait.error().rank == 2);
    REQUIRE(
        without_places(wait.error().message).find("rank 1 stopped: rank 2 did not arrive at rows #1 within 0.05 s") ==
        0);
    return 0;
  });
}

TEST_P(Conformance, AnExceptionInABodyIsAFailureOfItsRank) {
  const auto outcomes = run([](Communicator& comm) -> int {
    if (comm.rank() == comm.size() - 1) throw std::runtime_error("no more");
    const auto wait = comm.wait(Channel::kRows, comm.everyone(), 1, {"rows", 1}, patience());
    REQUIRE(!wait && wait.error().rank == comm.size() - 1);
    REQUIRE(wait.error().message.find("no more") != std::string::npos);
    return 0;
  });
  for (const RankOutcome& outcome : outcomes) {
    EXPECT_EQ(outcome.exit_status, outcome.rank == ranks() - 1 ? kBodyThrew : 0);
  }
}

}  // namespace moetax
