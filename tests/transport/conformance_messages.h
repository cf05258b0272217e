// Messages between nodes. Part of conformance.h.
#pragma once

#include "transport/conformance_base.h"

namespace moetax {

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

}  // namespace moetax
