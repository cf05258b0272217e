// What is built of flags, windows and messages. Part of conformance.h.
#pragma once

#include "transport/conformance_base.h"

namespace moetax {

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

}  // namespace moetax
