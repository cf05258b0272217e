// Who ranks are, flags and their notes, waits, windows. Part of conformance.h.
#pragma once

#include "transport/conformance_base.h"

namespace moetax {

// ---- Identity -----------------------------------------------------------------------------------------------------

TEST_P(Conformance, RanksKnowWhoTheyAre) {
  const int ranks = this->ranks();
  const auto outcomes = run([ranks](Communicator& comm) {
    REQUIRE(comm.size() == ranks);
    REQUIRE(comm.everyone().size() == static_cast<std::size_t>(ranks));
    REQUIRE(comm.world_rank(comm.rank()) == comm.rank());
    REQUIRE(comm.node_of(0) == 0);
    return 10 + comm.rank();
  });
  ASSERT_EQ(outcomes.size(), static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    EXPECT_EQ(outcomes[static_cast<std::size_t>(rank)].rank, rank);
    EXPECT_EQ(outcomes[static_cast<std::size_t>(rank)].exit_status, 10 + rank);
  }
}

// ---- Flags and waits ----------------------------------------------------------------------------------------------

// Every rank writes to every other and posts, many times; a flag that overtakes its data, or a lost wake-up, shows.
TEST_P(Conformance, StoresBeforeAPostAreVisibleAfterTheWait) {
  expect_all_zero([](Communicator& comm) {
    const auto size = static_cast<std::size_t>(comm.size());
    constexpr std::size_t kWords = 64;
    const NodeMap nodes(comm);
    const auto near = nodes.near();
    auto window = comm.make_window("mail", 2 * size * kWords * sizeof(std::uint64_t), patience());
    REQUIRE_OK(window);
    const auto mail = [&](Rank owner, Rank sender, std::uint64_t round) {
      auto* words = reinterpret_cast<std::uint64_t*>(window->at(owner));
      return words + ((round % 2) * size + static_cast<std::size_t>(sender)) * kWords;
    };
    for (std::uint64_t round = 1; round <= 300; ++round) {
      for (const Rank peer : near) {
        std::fill_n(mail(peer, comm.rank(), round), kWords, round * 100 + static_cast<std::uint64_t>(comm.rank()));
        comm.post(Channel::kRows, peer, round);
      }
      REQUIRE_OK(comm.wait(Channel::kRows, near, round, {"mail", round}, patience()));
      for (const Rank peer : near) {
        const std::uint64_t expected = round * 100 + static_cast<std::uint64_t>(peer);
        for (std::size_t i = 0; i < kWords; ++i) REQUIRE(mail(comm.rank(), peer, round)[i] == expected);
      }
    }
    return 0;
  });
}

TEST_P(Conformance, FlagsArePerChannelAndPerPairAndOnlyTheirValueCounts) {
  expect_all_zero([](Communicator& comm) {
    const Rank next = (comm.rank() + 1) % comm.size();
    const Rank before = (comm.rank() + comm.size() - 1) % comm.size();
    if (comm.size() > 1) REQUIRE(!comm.arrived(Channel::kCollective, before, 1));
    comm.post(Channel::kCall, next, 3);
    REQUIRE_OK(comm.wait(Channel::kCall, std::array{before}, 2, {"ring", 2}, patience()));
    REQUIRE_OK(comm.wait(Channel::kCall, std::array{before}, 3, {"ring", 3}, patience()));
    REQUIRE(comm.arrived(Channel::kCall, before, 3));
    if (comm.size() > 1) {
      REQUIRE(!comm.arrived(Channel::kCall, before, 4));
      REQUIRE(!comm.arrived(Channel::kRows, before, 1));
    }
    if (comm.size() > 2) REQUIRE(!comm.arrived(Channel::kCall, next, 1));
    return 0;
  });
}

TEST_P(Conformance, WaitsOnNobodyAndOnOneselfEndAtOnce) {
  expect_all_zero([](Communicator& comm) {
    const auto nobody = comm.wait(Channel::kRows, {}, 1, {"nothing", 1}, Deadline::in_seconds(0));
    REQUIRE_OK(nobody);
    REQUIRE(nobody->last == kNoRank);
    const auto self = comm.wait(Channel::kRows, std::array{comm.rank()}, 99, {"self", 1}, Deadline::in_seconds(0));
    REQUIRE_OK(self);
    REQUIRE(self->last == kNoRank && self->start_ns == 0 && self->end_ns == 0);
    REQUIRE(comm.arrived(Channel::kRows, comm.rank(), 99));
    return 0;
  });
}

// Rank 0 waits for channels in another order than they are posted in.
TEST_P(Conformance, PostsMayComeInAnyOrder) {
  expect_all_zero([](Communicator& comm) {
    for (std::uint64_t round = 1; round <= 50; ++round) {
      comm.post(Channel::kCollective, 0, round);
      comm.post(Channel::kRows, 0, round);
      comm.post(Channel::kCall, 0, round);
      if (comm.rank() == 0) {
        for (const Channel channel : {Channel::kCall, Channel::kCollective, Channel::kRows}) {
          REQUIRE_OK(comm.wait(channel, comm.everyone(), round, {"any order", round}, patience()));
        }
        for (const Rank peer : comm.everyone()) comm.post(Channel::kCall, peer, round);
      }
      REQUIRE_OK(comm.wait(Channel::kCall, std::array{0}, round, {"ready", round}, patience()));
    }
    return 0;
  });
}

// The last rank posts when all others have, which by then are asleep. All of them must name it.
TEST_P(ConformanceOfTwo, TheWaitNamesTheLastToArrive) {
  expect_all_zero([](Communicator& comm) {
    const Rank late = comm.size() - 1;
    const auto punctual = comm.everyone().first(static_cast<std::size_t>(late));
    const std::int64_t before = now_ns();
    if (comm.rank() == late) {
      REQUIRE_OK(comm.wait(Channel::kRows, punctual, 1, {"rows", 1}, patience()));
      sleep_ms(50);
    }
    for (const Rank peer : comm.everyone()) comm.post(Channel::kRows, peer, 1);
    const auto wait = comm.wait(Channel::kRows, comm.everyone(), 1, {"rows", 1}, patience());
    REQUIRE_OK(wait);
    if (comm.rank() == late) {
      REQUIRE(wait->start_ns == 0 && wait->end_ns == 0);
      REQUIRE(wait->last != late && wait->last != kNoRank);
      return 0;
    }
    REQUIRE(wait->last == late);
    REQUIRE(wait->last_posted_ns > before);
    REQUIRE(wait->start_ns == 0 || wait->start_ns >= before);
    REQUIRE(wait->start_ns == 0 || wait->end_ns >= wait->last_posted_ns);
    REQUIRE(wait->off_cpu_ns <= wait->end_ns - wait->start_ns);
    return 0;
  });
}

TEST_P(Conformance, AWaitingRankLeavesTheCpuAlone) {
  expect_all_zero([](Communicator& comm) {
    auto collectives = Collectives::create(comm, patience());
    REQUIRE_OK(collectives);
    if (comm.rank() == 0) {
      sleep_ms(300);
      for (const Rank peer : comm.everyone()) comm.post(Channel::kRows, peer, 1);
      return 0;
    }
    const std::int64_t cpu = thread_cpu_ns();
    REQUIRE_OK(comm.wait(Channel::kRows, std::array{0}, 1, {"rows", 1}, patience()));
    REQUIRE(thread_cpu_ns() - cpu < 30'000'000);  // 10 % of the time; it takes well below 1 %
    return 0;
  });
}

// ---- Windows ------------------------------------------------------------------------------------------------------

TEST_P(Conformance, WindowsHaveTheSizesEachRankAskedForAndAreZero) {
  expect_all_zero([](Communicator& comm) {
    const auto bytes_of = [](Rank rank) { return rank % 3 == 1 ? 0 : static_cast<std::size_t>(rank) * 3'000'000 + 5; };
    auto window = comm.make_window("uneven", bytes_of(comm.rank()), patience());
    REQUIRE_OK(window);
    REQUIRE(window->reserved_bytes() == bytes_of(comm.rank()));
    for (const Rank peer : comm.everyone()) {
      if (!comm.shares_memory(peer)) {
        REQUIRE(window->at(peer) == nullptr && window->bytes(peer) == 0);
        continue;
      }
      REQUIRE(window->bytes(peer) == bytes_of(peer));
      REQUIRE(reinterpret_cast<std::uintptr_t>(window->at(peer)) % 4096 == 0);
      if (window->bytes(peer) == 0) continue;
      REQUIRE(window->at(peer)[0] == std::byte{0});
      REQUIRE(window->at(peer)[window->bytes(peer) - 1] == std::byte{0});
    }
    auto empty = comm.make_window("empty", 0, patience());
    REQUIRE_OK(empty);
    return 0;
  });
}

TEST_P(Conformance, AWindowReservesAddressSpaceOnly) {
  expect_all_zero([](Communicator& comm) {
    constexpr std::size_t kBytes = std::size_t{64} << 30;
    auto window = comm.make_window("huge", kBytes, patience());
    REQUIRE_OK(window);
    window->at(comm.rank())[kBytes - 1] = std::byte{1};
    return 0;
  });
}

TEST_P(Conformance, AWindowBeyondTheAddressSpaceIsRefusedOnAllRanks) {
  expect_all_zero([](Communicator& comm) {
    for (const std::size_t bytes : {~std::size_t{0}, ~std::size_t{0} - 4096, std::size_t{1} << 50}) {
      const auto window = comm.make_window("endless", comm.rank() == comm.size() - 1 ? bytes : 1, patience());
      REQUIRE(!window && window.error().code == ErrorCode::kUnavailable);
      REQUIRE(window.error().message.find("endless") != std::string::npos);
    }
    REQUIRE_OK(comm.make_window("modest", 1, patience()));
    return 0;
  });
}

TEST_P(Conformance, AWindowOutlivesItsOtherHoldersAndItsCommunicator) {
  expect_all_zero([](Communicator& comm) {
    auto collectives = Collectives::create(comm, patience());
    REQUIRE_OK(collectives);
    const NodeMap nodes(comm);
    const auto near = nodes.near();
    Window kept;
    {
      auto half = comm.split(0, patience());
      REQUIRE_OK(half);
      auto window = (*half)->make_window("kept", 100, patience());
      REQUIRE_OK(window);
      kept = *window;
      for (const Rank peer : near) kept.at(peer)[comm.rank()] = std::byte{7};
    }
    if (comm.rank() != near.front()) kept = Window();
    REQUIRE_OK(collectives->barrier("dropped", patience()));
    if (comm.rank() != near.front()) return 0;
    for (const Rank peer : near) {
      for (const Rank writer : near) REQUIRE(kept.at(peer)[writer] == std::byte{7});
    }
    return 0;
  });
}

TEST_P(ConformanceOfTwo, RanksThatMakeDifferentWindowsAreTold) {
  expect_all_zero([](Communicator& comm) {
    const Rank odd = comm.size() - 1;
    const auto window = comm.make_window(comm.rank() == odd ? "counts" : "rows", 8, patience());
    REQUIRE(!window);
    REQUIRE(window.error().code == ErrorCode::kPeerFailed);
    REQUIRE(window.error().rank == odd);
    REQUIRE(window.error().message.find("has window \"counts\"") != std::string::npos);
    REQUIRE(window.error().message.find("window \"rows\"") != std::string::npos);
    return 0;
  });
}

}  // namespace moetax
