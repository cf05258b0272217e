// What the observer hears: bytes that equal those worked out from the routing, spans that nest, waits that name.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <tuple>

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
  void flowed(const FlowRecord& flow) override { flows.push_back(flow); }

  bool all_closed() const { return open_.empty(); }

  std::map<Part, int> entered;
  std::vector<WaitRecord> waits;
  std::vector<ExchangeRecord> exchanges;
  std::vector<FlowRecord> flows;
  std::atomic<bool>* waiting = nullptr;  // set when a wait begins

 private:
  std::vector<Part> open_;
};

struct Expected {
  std::int64_t logical = 0, physical = 0, internode = 0;
};

// Hops of a row between two nodes of `num`, from the definitions of the algorithms.
int hops(ExchangeAlgorithm algorithm, int from, int to, int num) {
  if (algorithm == ExchangeAlgorithm::kRing) return std::min((to - from + num) % num, (from - to + num) % num);
  if (algorithm != ExchangeAlgorithm::kMesh2d) return 1;
  const int columns = num == 8 ? 4 : 2;  // grids of 2 x 4 and 2 x 2
  return from / columns != to / columns && from % columns != to % columns ? 2 : 1;
}

// All ranks together, from the routing alone. A dispatch counts a token once per destination rank, a combine once per
// expert; two-level, once per destination node between nodes, and hands rows on inside them.
Expected expected_bytes(const Scenario& s, bool dispatch) {
  Expected rows;
  const bool per_node = s.algorithm == ExchangeAlgorithm::kTwoLevel;
  const int num_nodes = s.node_of(s.ranks() - 1) + 1;
  for (Rank rank = 0; rank < s.ranks(); ++rank) {
    for (std::int64_t i = 0; i < s.tokens[static_cast<std::size_t>(rank)]; ++i) {
      std::multiset<Rank> to;
      for (const int e : s.chosen(s.first_token(rank) + i)) to.insert(s.placement().owner(e));
      std::set<int> nodes;
      for (auto it = to.begin(); it != to.end(); it = dispatch ? to.upper_bound(*it) : std::next(it)) {
        ++rows.logical;
        const int node = s.node_of(*it), distance = hops(s.algorithm, s.node_of(rank), node, num_nodes);
        if (node == s.node_of(rank)) {
          rows.physical += *it != rank;
        } else if (!per_node || nodes.insert(node).second) {
          rows.physical += distance;
          rows.internode += distance;
        }
      }
      // What a stop writes to, or reads from, its node mates: every choice that is not its own.
      if (!per_node) continue;
      for (const Rank owner : to) {
        const int node = s.node_of(owner);
        const Rank stop = node * s.ranks_per_node + rank % s.ranks_per_node;
        if (node != s.node_of(rank)) rows.physical += owner != stop;
      }
    }
  }
  const auto bytes = s.hidden * static_cast<std::int64_t>(size_of(s.dtype));
  return {rows.logical * bytes, rows.physical * bytes, rows.internode * bytes};
}

class RecordedBytes : public testing::TestWithParam<std::tuple<ExchangeAlgorithm, int>> {};

TEST_P(RecordedBytes, AreThoseOfTheRouting) {
  const auto& [algorithm, ranks_per_node] = GetParam();
  const Scenario s{.tokens = {20, 300, 0, 31, 7, 9, 260, 4},
                   .hidden = 24,
                   .experts = 18,
                   .topk = 4,
                   .ranks_per_node = ranks_per_node,
                   .algorithm = algorithm};
  constexpr const char* kNames[] = {"dispatch", "combine", "redispatch", "dispatch_grad", "combine_grad"};
  std::mutex mutex;
  std::map<std::string, Expected> counted;
  on_threads(
      s.ranks(),
      [&](Communicator& comm) {
        Recorder recorder;
        ExchangeOptions options = s.options(comm.rank());
        options.observer = &recorder;
        auto x = Exchange::create(comm, options);
        ASSERT_TRUE(ok(x));
        run_round(*x, s, comm.rank());
        ASSERT_EQ(recorder.exchanges.size(), std::size(kNames));
        for (std::size_t i = 0; i < std::size(kNames); ++i) {
          const ExchangeRecord& record = recorder.exchanges[i];
          EXPECT_STREQ(record.name, kNames[i]);
          EXPECT_STREQ(record.phase, i < 2 ? "forward" : "backward");
          EXPECT_STREQ(record.family, "all-to-all");
          EXPECT_EQ(record.number, i + 1);
          EXPECT_LE(record.start_ns, record.end_ns);
          EXPECT_LE(record.wait_ns + record.transfer_ns, record.end_ns - record.start_ns);
          EXPECT_NE(record.last_rank, kNoRank);
          const std::lock_guard lock(mutex);
          counted[record.name].logical += record.logical_bytes;
          counted[record.name].physical += record.physical_bytes;
          counted[record.name].internode += record.internode_bytes;
        }
        EXPECT_TRUE(recorder.all_closed());
        EXPECT_EQ(recorder.entered[Part::kLaunch], 5);
      },
      ranks_per_node);
  for (const std::string name : kNames) {
    const Expected bytes = expected_bytes(s, !name.starts_with("combine"));
    EXPECT_EQ(counted[name].logical, bytes.logical) << name;
    EXPECT_EQ(counted[name].physical, bytes.physical) << name;
    EXPECT_EQ(counted[name].internode, bytes.internode) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, RecordedBytes,
                         testing::Combine(testing::Values(ExchangeAlgorithm::kFlat, ExchangeAlgorithm::kDirect,
                                                          ExchangeAlgorithm::kRing, ExchangeAlgorithm::kMesh2d,
                                                          ExchangeAlgorithm::kTwoLevel),
                                          testing::Values(8, 2, 1)));

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

TEST(ExchangeRecords, Fp32SumsCountTwiceTheBytesOnTheirWayBack) {
  std::int64_t internode[2][2] = {};  // by fp32 sums, by call
  for (const bool fp32_sums : {false, true}) {
    const Scenario s{.tokens = {20, 100, 7, 60},
                     .hidden = 24,
                     .experts = 8,
                     .topk = 3,
                     .ranks_per_node = 2,
                     .algorithm = ExchangeAlgorithm::kTwoLevel,
                     .fp32_sums = fp32_sums};
    std::mutex mutex;
    on_threads(
        4,
        [&](Communicator& comm) {
          Recorder recorder;
          ExchangeOptions options = s.options(comm.rank());
          options.observer = &recorder;
          auto x = Exchange::create(comm, options);
          ASSERT_TRUE(ok(x));
          run_round(*x, s, comm.rank());
          const std::lock_guard lock(mutex);
          for (int call = 0; call < 2; ++call) {
            internode[fp32_sums][call] += recorder.exchanges[static_cast<std::size_t>(call)].internode_bytes;
          }
        },
        2);
  }
  EXPECT_GT(internode[0][1], 0);
  EXPECT_EQ(internode[1][0], internode[0][0]);
  EXPECT_EQ(internode[1][1], 2 * internode[0][1]);
}

// Rows of 2 KiB between two nodes of one rank: all go to the other rank, in messages of 30 rows.
TEST(ExchangeRecords, StreamsFlowFromTheirPeer) {
  for (const ExchangeAlgorithm algorithm :
       {ExchangeAlgorithm::kFlat, ExchangeAlgorithm::kDirect, ExchangeAlgorithm::kTwoLevel}) {
    const Scenario s{
        .tokens = {20, 100}, .hidden = 1024, .experts = 2, .topk = 2, .ranks_per_node = 1, .algorithm = algorithm};
    on_threads(
        2,
        [&](Communicator& comm) {
          Recorder recorder;
          ExchangeOptions options = s.options(comm.rank());
          options.observer = &recorder;
          auto x = Exchange::create(comm, options);
          ASSERT_TRUE(ok(x));
          const auto sent = x->dispatch(s.rows(0, comm.rank()).view(), s.routing(comm.rank()));
          ASSERT_TRUE(ok(sent));
          if (comm.rank() == 1) {  // twenty rows in one message are no stream
            EXPECT_TRUE(recorder.flows.empty());
            return;
          }
          ASSERT_EQ(recorder.flows.size(), 1u);
          EXPECT_EQ(recorder.flows[0].peer, 1);
          EXPECT_EQ(recorder.flows[0].bytes, 70 * 2048);  // but for the first message
          EXPECT_LE(recorder.exchanges[0].start_ns, recorder.flows[0].start_ns);
          EXPECT_LE(recorder.flows[0].start_ns, recorder.flows[0].end_ns);
          EXPECT_LE(recorder.flows[0].end_ns, recorder.exchanges[0].end_ns);
        },
        1);
  }
}

}  // namespace
}  // namespace moetax::test
