// What every transport must do, as one suite over (transport, number of ranks). A transport is a Launcher; its test
// program includes this file once and instantiates the suite:
//
//   INSTANTIATE_CONFORMANCE(Local, &kThreads, &kProcesses);
//
// A rank's body may run in another process, where a failed GoogleTest assertion would be lost. So bodies check with
// REQUIRE, which prints and returns 1 from the body, and the test asserts that all bodies returned 0.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "moetax/transport/collectives.h"
#include "moetax/transport/communicator.h"
#include "moetax/transport/local.h"
#include "moetax/transport/node_map.h"

namespace moetax {

using RankBody = std::function<int(Communicator&)>;

struct Launcher {
  std::string name;
  std::function<Result<std::vector<RankOutcome>>(const LocalOptions&, const RankBody&)> run;
  std::string unavailable;  // why it cannot run here; empty if it can
  int ranks_per_node = 0;   // of tests that do not ask for a number
  int most_ranks = 8;
};

#define REQUIRE(condition)                                                                               \
  do {                                                                                                   \
    if (!(condition)) {                                                                                  \
      std::fprintf(stderr, "%s:%d: rank %d: not so: %s\n", __FILE__, __LINE__, comm.rank(), #condition); \
      return 1;                                                                                          \
    }                                                                                                    \
  } while (false)

#define REQUIRE_OK(expression)                                                    \
  if (const auto& moetax_required = (expression); !moetax_required) {             \
    std::fprintf(stderr, "%s:%d: rank %d: %s\n", __FILE__, __LINE__, comm.rank(), \
                 moetax_required.error().message.c_str());                        \
    return 1;                                                                     \
  }

// Without where ranks are, which only several nodes say: "rank 3 (node 1, host n1)".
#define REQUIRE_TEXT(actual, expected)                                                                   \
  if (const std::string moetax_text = without_places(actual); moetax_text != (expected)) {               \
    std::fprintf(stderr, "%s:%d: rank %d: \"%s\"\n  expected \"%s\"\n", __FILE__, __LINE__, comm.rank(), \
                 moetax_text.c_str(), std::string(expected).c_str());                                    \
    return 1;                                                                                            \
  }

// Long enough never to be the reason for a result, also under sanitizers on a busy machine.
inline Deadline patience() {
  return Deadline::in_seconds(60);
}

inline void sleep_ms(int ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

inline std::string without_places(std::string text) {
  for (std::size_t at = 0; (at = text.find(" (node ", at)) != std::string::npos;) {
    text.erase(at, text.find(')', at) + 1 - at);
  }
  return text;
}

class Conformance : public testing::TestWithParam<std::tuple<const Launcher*, int>> {
 protected:
  void SetUp() override {
    if (!launcher().unavailable.empty()) GTEST_SKIP() << launcher().unavailable;
    if (ranks() > launcher().most_ranks) GTEST_SKIP() << "only " << launcher().most_ranks << " processes were started";
  }
  const Launcher& launcher() const { return *std::get<0>(GetParam()); }
  int ranks() const { return std::get<1>(GetParam()); }

  std::vector<RankOutcome> run(const RankBody& body, int ranks_per_node = 0) {
    auto outcomes = launcher().run({ranks(), ranks_per_node ? ranks_per_node : launcher().ranks_per_node}, body);
    if (!outcomes) {
      ADD_FAILURE() << outcomes.error().message;
      return {};
    }
    return *outcomes;
  }
  void expect_all_zero(const RankBody& body, int ranks_per_node = 0) {
    const auto outcomes = run(body, ranks_per_node);
    ASSERT_EQ(outcomes.size(), static_cast<std::size_t>(ranks()));
    for (const RankOutcome& outcome : outcomes) {
      EXPECT_EQ(outcome.exit_status, 0) << "rank " << outcome.rank;
      EXPECT_EQ(outcome.signal, 0) << "rank " << outcome.rank;
    }
  }
};

// For what needs at least so many ranks.
class ConformanceOfTwo : public Conformance {};
class ConformanceOfThree : public Conformance {};
class ConformanceOfFour : public Conformance {};

inline std::string conformance_name(const testing::TestParamInfo<Conformance::ParamType>& info) {
  return std::get<0>(info.param)->name + std::to_string(std::get<1>(info.param));
}

// The whole suite for the transports given as Launcher pointers, with 1 to 8 ranks.
#define INSTANTIATE_CONFORMANCE(name, ...)                                \
  INSTANTIATE_CONFORMANCE_CASE(name, Conformance, 1, __VA_ARGS__);        \
  INSTANTIATE_CONFORMANCE_CASE(name, ConformanceOfTwo, 2, __VA_ARGS__);   \
  INSTANTIATE_CONFORMANCE_CASE(name, ConformanceOfThree, 3, __VA_ARGS__); \
  INSTANTIATE_CONFORMANCE_CASE(name, ConformanceOfFour, 4, __VA_ARGS__)
#define INSTANTIATE_CONFORMANCE_CASE(name, fixture, least_ranks, ...) \
  INSTANTIATE_TEST_SUITE_P(                                           \
      name, fixture, testing::Combine(testing::Values(__VA_ARGS__), testing::Range(least_ranks, 9)), conformance_name)

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

// ---- Messages -----------------------------------------------------------------------------------------------------

// Of sizes around what a transport may hold at once, all under way together, both ways.
TEST_P(Conformance, MessagesArriveWholeAndInOrder) {
  expect_all_zero([](Communicator& comm) {
    const NodeMap nodes(comm);
    constexpr std::array<std::size_t, 6> kSizes{0, 1, 4096, 65'535, 1'000'003, 7};
    const auto content = [](Rank from, Rank to, std::size_t i) {
      return static_cast<std::byte>(from * 17 + to * 5 + static_cast<int>(i) + 1);
    };
    for (std::uint64_t round = 1; round <= 3; ++round) {
      std::vector<Message> messages;
      std::vector<std::vector<std::byte>> sent, received;
      for (const Rank peer : nodes.far()) {
        for (std::size_t i = 0; i < kSizes.size(); ++i) {
          sent.emplace_back(kSizes[i], content(comm.rank(), peer, i));
          received.emplace_back(kSizes[i]);
          if (round == 2) messages.push_back(comm.receive(peer, received.back()));
          messages.push_back(comm.send(peer, sent.back()));
          if (round != 2) messages.push_back(comm.receive(peer, received.back()));
        }
      }
      REQUIRE_OK(comm.finish(messages, {"messages", round}, patience()));
      auto it = received.begin();
      for (const Rank peer : nodes.far()) {
        for (std::size_t i = 0; i < kSizes.size(); ++i, ++it) {
          REQUIRE(*it == std::vector(kSizes[i], content(peer, comm.rank(), i)));
        }
      }
    }
    return 0;
  });
}

TEST_P(Conformance, MessagesCanBeTakenOneByOne) {
  expect_all_zero([](Communicator& comm) {
    const NodeMap nodes(comm);
    std::vector<std::uint64_t> mail(static_cast<std::size_t>(comm.size()));
    const std::uint64_t mine = 1000 + static_cast<std::uint64_t>(comm.rank());
    std::vector<Message> incoming, outgoing;
    std::vector<Rank> from(nodes.far().begin(), nodes.far().end());
    for (const Rank peer : from) {
      incoming.push_back(
          comm.receive(peer, std::as_writable_bytes(std::span(&mail[static_cast<std::size_t>(peer)], 1))));
      outgoing.push_back(comm.send(peer, std::as_bytes(std::span(&mine, 1))));
    }
    while (!incoming.empty()) {
      const auto idx = comm.finish_one(incoming, {"mail", 1}, patience());
      REQUIRE_OK(idx);
      const auto at = static_cast<std::ptrdiff_t>(*idx);
      REQUIRE(mail[static_cast<std::size_t>(from[*idx])] == 1000 + static_cast<std::uint64_t>(from[*idx]));
      incoming.erase(incoming.begin() + at);
      from.erase(from.begin() + at);
    }
    for (const Message message : outgoing) {
      auto done = comm.done(message);
      for (const Deadline end = patience(); done && !*done && !end.passed(); sleep_ms(1)) done = comm.done(message);
      REQUIRE(done && *done);
    }
    return 0;
  });
}

TEST_P(ConformanceOfThree, AMessageOfAnotherSizeIsAnError) {
  expect_all_zero([](Communicator& comm) {
    if (comm.shares_memory(comm.size() - 1) == comm.shares_memory(0)) return 0;
    const std::vector<std::byte> bytes(comm.rank() == 0 ? 100 : 8);
    std::vector<std::byte> room(8);
    const Rank peer = comm.rank() == 0 ? comm.size() - 1 : 0;
    if (comm.rank() != 0 && comm.rank() != comm.size() - 1) return 0;
    const Message out = comm.send(peer, bytes), in = comm.receive(peer, room);
    const auto received = comm.finish(std::array{in}, {"rows", 1}, patience());
    const auto sent = comm.finish(std::array{out}, {"rows", 1}, patience());
    REQUIRE_OK(sent);
    if (comm.rank() == 0) {
      REQUIRE_OK(received);
    } else {
      REQUIRE(!received && received.error().code == ErrorCode::kPeerFailed && received.error().rank == 0);
      REQUIRE(without_places(received.error().message).find("rank 0 sent 100 bytes") == 0);
    }
    return 0;
  });
}

TEST_P(ConformanceOfThree, AMessageThatDoesNotComeNamesItsSender) {
  expect_all_zero([](Communicator& comm) {
    const Rank late = comm.size() - 1;
    std::vector<std::byte> room(8);
    if (comm.rank() == 0 && !comm.shares_memory(late)) {
      const auto wait = comm.finish(std::array{comm.receive(late, room)}, {"rows", 7}, Deadline::in_seconds(0.1));
      REQUIRE(!wait && wait.error().code == ErrorCode::kPeerFailed && wait.error().rank == late);
      REQUIRE(wait.error().message.find("did not arrive at rows #7 within 0.1 s") != std::string::npos);
    }
    comm.post(Channel::kCollective, late, 1);
    REQUIRE_OK(
        comm.wait(Channel::kCollective, std::array{comm.rank() == late ? 0 : comm.rank()}, 1, {"end", 1}, patience()));
    return 0;
  });
}

TEST_P(Conformance, NotesTravelWithFlags) {
  expect_all_zero([](Communicator& comm) {
    const auto note_of = [](Rank rank, std::uint64_t round) {
      return Note{{round * 1000 + static_cast<std::uint64_t>(rank), ~round}};
    };
    for (std::uint64_t round = 1; round <= 200; ++round) {
      for (const Rank peer : comm.everyone()) comm.post(Channel::kCall, peer, round, note_of(comm.rank(), round));
      REQUIRE_OK(comm.wait(Channel::kCall, comm.everyone(), round, {"notes", round}, patience()));
      for (const Rank peer : comm.everyone()) {
        REQUIRE(comm.note(Channel::kCall, peer, round) == note_of(peer, round));
      }
    }
    return 0;
  });
}

// ---- Collectives --------------------------------------------------------------------------------------------------

TEST_P(Conformance, AllGatherBringsEveryRanksBytesInRankOrder) {
  expect_all_zero([](Communicator& comm) {
    auto collectives = Collectives::create(comm, patience());
    REQUIRE_OK(collectives);
    for (std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{24}, std::size_t{4096}}) {
      for (int round = 0; round < 20; ++round) {
        const auto value = [&](Rank rank) { return static_cast<std::byte>(rank * 31 + round); };
        const std::vector<std::byte> mine(bytes, value(comm.rank()));
        std::vector<std::byte> all(bytes * static_cast<std::size_t>(comm.size()));
        REQUIRE_OK(collectives->all_gather("gather", mine, all, patience()));
        for (std::size_t i = 0; i < all.size(); ++i) REQUIRE(all[i] == value(static_cast<Rank>(i / bytes)));
      }
    }
    std::vector<std::byte> all(3);
    const auto wrong = collectives->all_gather("gather", std::vector<std::byte>(4097), all, patience());
    REQUIRE(!wrong && wrong.error().code == ErrorCode::kUsage);
    return 0;
  });
}

TEST_P(Conformance, SeveralCollectivesOfOneCommunicatorDoNotDisturbEachOther) {
  expect_all_zero([](Communicator& comm) {
    auto first = Collectives::create(comm, patience());
    REQUIRE_OK(first);
    auto second = Collectives::create(comm, patience());
    REQUIRE_OK(second);
    for (int round = 0; round < 50; ++round) {
      std::vector<std::byte> all(static_cast<std::size_t>(comm.size()));
      auto& collectives = round % 3 == 0 ? *first : *second;
      const std::array mine{static_cast<std::byte>(comm.rank() + round)};
      REQUIRE_OK(collectives.all_gather("turns", mine, all, patience()));
      for (const Rank peer : comm.everyone()) {
        REQUIRE(all[static_cast<std::size_t>(peer)] == static_cast<std::byte>(peer + round));
      }
    }
    return 0;
  });
}

TEST_P(Conformance, AgreeShowsWhoHasWhat) {
  expect_all_zero([](Communicator& comm) {
    auto collectives = Collectives::create(comm, patience());
    REQUIRE_OK(collectives);
    REQUIRE_OK(collectives->agree("the layer", "H=2048", patience()));
    if (comm.size() == 1) return 0;
    const auto differs = collectives->agree("the layer", comm.rank() == 1 ? "H=4096" : "H=2048", patience());
    REQUIRE(!differs);
    REQUIRE(differs.error().code == ErrorCode::kPeerFailed);
    REQUIRE(differs.error().rank == 1);
    REQUIRE(differs.error().message.find("ranks disagree on the layer: rank") == 0);
    REQUIRE(differs.error().message.find("rank 1 has H=4096") != std::string::npos);
    REQUIRE(differs.error().message.find("H=2048") != std::string::npos);
    return 0;
  });
}

TEST_P(Conformance, GatherBytesBringsUnevenBytesToRankZero) {
  expect_all_zero([](Communicator& comm) {
    auto collectives = Collectives::create(comm, patience());
    REQUIRE_OK(collectives);
    const auto bytes_of = [](Rank rank) { return static_cast<std::size_t>((rank + 2) % 3) * 70'001; };
    const std::vector<std::byte> mine(bytes_of(comm.rank()), static_cast<std::byte>(comm.rank() + 1));
    const auto all = collectives->gather_bytes(mine, patience());
    REQUIRE_OK(all);
    REQUIRE(all->size() == (comm.rank() == 0 ? static_cast<std::size_t>(comm.size()) : 0));
    for (std::size_t rank = 0; rank < all->size(); ++rank) {
      const auto& bytes = (*all)[rank];
      REQUIRE(bytes.size() == bytes_of(static_cast<Rank>(rank)));
      REQUIRE(std::count(bytes.begin(), bytes.end(), static_cast<std::byte>(rank + 1)) ==
              static_cast<std::ptrdiff_t>(bytes.size()));
    }
    return 0;
  });
}

// Remembers what it was told, and that spans nest.
class RecordingObserver final : public Observer {
 public:
  void enter(Part part, const char*) override {
    ++open_;
    seen_[static_cast<std::size_t>(part)] = true;
  }
  void leave() override { --open_; }
  void waited(const WaitRecord& wait) override { waits_.push_back(wait); }
  void exchanged(const ExchangeRecord& exchange) override { exchanges_.push_back(exchange); }

  int open_ = 0;
  std::array<bool, kNumParts> seen_{};
  std::vector<WaitRecord> waits_;
  std::vector<ExchangeRecord> exchanges_;
};

// On one node the reference adds in rank order as well, so the bits must be the same; several nodes add node by node.
// Sizes around and beyond one chunk.
TEST_P(Conformance, AllReduceSumsInRankOrder) {
  expect_all_zero(
      [](Communicator& comm) {
        auto collectives = Collectives::create(comm, patience());
        REQUIRE_OK(collectives);
        const auto value = [](Rank rank, std::size_t i) {
          return 1.0f / (1.0f + static_cast<float>((i * 7 + static_cast<std::size_t>(rank) * 13) % 1001));
        };
        const NodeMap nodes(comm);
        std::uint64_t number = 0;
        for (const std::size_t count :
             {std::size_t{0}, std::size_t{1}, std::size_t{5}, std::size_t{4099}, (std::size_t{1} << 20) + 3}) {
          std::vector<float> values(count);
          for (std::size_t i = 0; i < count; ++i) values[i] = value(comm.rank(), i);
          RecordingObserver observer;
          REQUIRE_OK(collectives->all_reduce_sum("reduce", values, patience(), &observer));
          for (std::size_t i = 0; i < count; ++i) {
            float sum = value(0, i);
            for (Rank peer = 1; peer < comm.size(); ++peer) sum += value(peer, i);
            if (nodes.num_nodes() == 1) REQUIRE(std::memcmp(&values[i], &sum, sizeof sum) == 0);
            REQUIRE(std::abs(values[i] - sum) <= 1e-6f * sum);
          }
          REQUIRE(observer.open_ == 0);
          REQUIRE(observer.exchanges_.size() == 1);
          const ExchangeRecord& record = observer.exchanges_.front();
          REQUIRE(std::string(record.name) == "reduce" && std::string(record.family) == "all-reduce");
          REQUIRE(record.number == ++number);
          REQUIRE(record.wait_ns + record.transfer_ns <= record.end_ns - record.start_ns);
          if (comm.size() == 1 || count == 0) continue;
          // Its share from its node, a piece of it from every other node, twice, then its node's shares.
          const std::int64_t whole = count * sizeof(float), near = std::ssize(nodes.near()),
                             far = nodes.num_nodes() - 1;
          const std::int64_t share = nodes.place_of(comm.rank()) < nodes.num_rails() ? whole / nodes.num_rails() : 0;
          const auto about = [&](std::int64_t bytes, std::int64_t expected) {
            return std::abs(bytes - expected) <= 256 * comm.size();  // parts differ by at most one value a chunk
          };
          REQUIRE(about(record.internode_bytes, 2 * share * far / (far + 1)));
          REQUIRE(about(record.logical_bytes - record.internode_bytes, near * share + whole));
          REQUIRE(about(record.physical_bytes - record.internode_bytes, (near - 1) * share + whole - share));
          for (const Part part : {Part::kPack, Part::kWire, Part::kLaunch, Part::kWait}) {
            REQUIRE(observer.seen_[static_cast<std::size_t>(part)]);
          }
        }
        return 0;
      },
      2);
}

TEST_P(ConformanceOfTwo, AllReduceOfDifferentCountsIsAnErrorNotAHang) {
  expect_all_zero([](Communicator& comm) {
    auto collectives = Collectives::create(comm, patience());
    REQUIRE_OK(collectives);
    std::vector<float> values(comm.rank() == 1 ? 0 : 3'000'000);
    const auto reduced = collectives->all_reduce_sum("reduce", values, patience(), nullptr);
    REQUIRE(!reduced && reduced.error().rank == 1);
    REQUIRE(reduced.error().message.find("rank 1 has all_reduce_sum(\"reduce\") of 0 values") != std::string::npos);
    REQUIRE(reduced.error().message.find("of 3000000 values") != std::string::npos);
    return 0;
  });
}

TEST_P(ConformanceOfTwo, DifferentCollectivesAreToldApart) {
  expect_all_zero([](Communicator& comm) {
    auto collectives = Collectives::create(comm, patience());
    REQUIRE_OK(collectives);
    const std::array<std::byte, 8> mine{};
    std::vector<std::byte> all(8 * static_cast<std::size_t>(comm.size()));
    const auto made = comm.rank() == 1 ? collectives->barrier("the end", patience())
                                       : collectives->all_gather("sizes", mine, all, patience());
    REQUIRE(!made && made.error().code == ErrorCode::kPeerFailed && made.error().rank == 1);
    REQUIRE(made.error().message.find("rank 1 has barrier(") != std::string::npos);
    REQUIRE(made.error().message.find("all_gather(") != std::string::npos);
    REQUIRE(made.error().message.find("of 8 bytes") != std::string::npos);
    return 0;
  });
}

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
