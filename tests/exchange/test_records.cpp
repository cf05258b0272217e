// What the observer hears: bytes that equal those worked out from the routing, spans that nest, waits that name.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <set>
#include <string>
#include <thread>

#include "exchange/conformance.h"
#include "exchange/world.h"

namespace moetax::test {
namespace {

class Recorder final : public Observer {
 public:
  void enter(Part part, const char*) override {
    open_.push_back(part);
    ++entered[part];
    if (part == Part::kWait && waiting) waiting->store(true);
  }
  void leave() override { open_.pop_back(); }
  void waited(const WaitRecord& wait) override { waits.push_back(wait); }
  void exchanged(const ExchangeRecord& exchange) override { exchanges.push_back(exchange); }

  bool all_closed() const { return open_.empty(); }

  std::map<Part, int> entered;
  std::vector<WaitRecord> waits;
  std::vector<ExchangeRecord> exchanges;
  std::atomic<bool>* waiting = nullptr;  // set when a wait begins

 private:
  std::vector<Part> open_;
};

struct Expected {
  std::int64_t logical = 0, physical = 0, internode = 0;
};

// From the routing alone: `per_rank` counts a token once per destination rank, else once per expert.
Expected expected_bytes(const Scenario& s, Rank rank, bool per_rank) {
  Expected bytes;
  const auto row = s.hidden * static_cast<std::int64_t>(size_of(s.dtype));
  for (std::int64_t i = 0; i < s.tokens[static_cast<std::size_t>(rank)]; ++i) {
    std::multiset<Rank> to;
    for (const int e : s.chosen(s.first_token(rank) + i)) to.insert(s.placement().owner(e));
    for (auto it = to.begin(); it != to.end(); it = per_rank ? to.upper_bound(*it) : std::next(it)) {
      bytes.logical += row;
      bytes.physical += *it != rank ? row : 0;
    }
  }
  return bytes;
}

TEST(ExchangeRecords, BytesAreThoseOfTheRouting) {
  const Scenario s{.tokens = {20, 300, 0, 31}, .hidden = 24, .experts = 10, .topk = 4, .threads = 1};
  on_threads(4, [&](Communicator& comm) {
    Recorder recorder;
    ExchangeOptions options = s.options(comm.rank());
    options.observer = &recorder;
    auto x = Exchange::create(comm, options);
    ASSERT_TRUE(ok(x));
    run_round(*x, s, comm.rank());
    const char* names[] = {"dispatch", "combine", "redispatch", "dispatch_grad", "combine_grad"};
    ASSERT_EQ(recorder.exchanges.size(), std::size(names));
    for (std::size_t i = 0; i < std::size(names); ++i) {
      const ExchangeRecord& record = recorder.exchanges[i];
      EXPECT_STREQ(record.name, names[i]);
      EXPECT_STREQ(record.phase, i < 2 ? "forward" : "backward");
      EXPECT_STREQ(record.family, "all-to-all");
      EXPECT_EQ(record.number, i + 1);
      const bool pulls = std::string(names[i]).starts_with("combine");
      const Expected bytes = expected_bytes(s, comm.rank(), !pulls);
      EXPECT_EQ(record.logical_bytes, bytes.logical) << names[i];
      EXPECT_EQ(record.physical_bytes, bytes.physical) << names[i];
      EXPECT_EQ(record.internode_bytes, bytes.internode) << names[i];
      EXPECT_LE(record.start_ns, record.end_ns);
      EXPECT_LE(record.wait_ns + record.transfer_ns, record.end_ns - record.start_ns);
      EXPECT_NE(record.last_rank, kNoRank);
    }
    EXPECT_TRUE(recorder.all_closed());
    EXPECT_EQ(recorder.entered[Part::kLaunch], 5);
  });
}

TEST(ExchangeRecords, OneRankHasNeitherWireNorWait) {
  const Scenario s{.tokens = {20}, .hidden = 24, .experts = 10, .topk = 4};
  on_threads(1, [&](Communicator& comm) {
    Recorder recorder;
    ExchangeOptions options = s.options(comm.rank());
    options.observer = &recorder;
    auto x = Exchange::create(comm, options);
    ASSERT_TRUE(ok(x));
    run_round(*x, s, comm.rank());
    EXPECT_EQ(recorder.entered[Part::kWire], 0);
    EXPECT_EQ(recorder.entered[Part::kWait], 0);
    EXPECT_GT(recorder.entered[Part::kPack], 0);
    for (const ExchangeRecord& record : recorder.exchanges) {
      EXPECT_EQ(record.physical_bytes, 0);
      EXPECT_EQ(record.last_rank, 0);
    }
  });
}

// Rank 2 comes only after the others have begun to wait.
TEST(ExchangeRecords, TheLatePeerIsNamed) {
  const Scenario s{.tokens = {4, 4, 4}, .hidden = 8, .experts = 6, .topk = 2};
  std::atomic<bool> waiting[2] = {false, false};
  on_threads(3, [&](Communicator& comm) {
    const Rank rank = comm.rank();
    Recorder recorder;
    if (rank < 2) recorder.waiting = &waiting[rank];
    ExchangeOptions options = s.options(rank);
    options.observer = &recorder;
    auto x = Exchange::create(comm, options);
    ASSERT_TRUE(ok(x));
    while (rank == 2 && !(waiting[0] && waiting[1])) std::this_thread::yield();
    const auto sent = x->dispatch(s.rows(0, rank).view(), s.routing(rank));
    ASSERT_TRUE(ok(sent));
    ASSERT_EQ(recorder.exchanges.size(), 1u);
    EXPECT_EQ(recorder.exchanges[0].last_rank, 2);
    if (rank < 2) {
      ASSERT_EQ(recorder.waits.size(), 1u);
      EXPECT_EQ(recorder.waits[0].peer, 2);
      EXPECT_EQ(recorder.exchanges[0].wait_ns, recorder.waits[0].end_ns - recorder.waits[0].start_ns);
    } else {
      EXPECT_TRUE(recorder.waits.empty());
    }
  });
}

}  // namespace
}  // namespace moetax::test
