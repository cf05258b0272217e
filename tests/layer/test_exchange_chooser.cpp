// The choice while ranks run, on costs that are made up.
#include <gtest/gtest.h>

#include "cost/synthetic.h"
#include "moetax/base/memory.h"
#include "moetax/layer/exchange_chooser.h"
#include "moetax/route/load_file.h"
#include "moetax/transport/local.h"

namespace moetax::test {
namespace {

constexpr int kRanks = 4, kPerNode = 2, kExperts = 16, kTopK = 4;
constexpr std::int64_t kHidden = 64, kTokens = 300;

class CountingObserver final : public Observer {
 public:
  void enter(Part, const char*) override { ++entered; }
  void leave() override { ++left; }
  void waited(const WaitRecord&) override {}
  void exchanged(const ExchangeRecord&) override { ++exchanges; }
  int entered = 0, left = 0, exchanges = 0;
};

struct Ran {
  ExchangeAlgorithm algorithm = ExchangeAlgorithm::kFlat;
  std::optional<ExchangeDecision> first, second;
  std::optional<Traffic> traffic;
  int exchanges = 0;
  bool passed_on = false;
};

Result<Ran> run_rank(Communicator& world, int ep_size, const ExchangePolicyOptions& options) {
  CountingObserver observer;
  std::optional<MachineCosts> costs;
  if (world.rank() == 0) costs = synthetic_machine(kRanks, kPerNode);
  ExchangeChooser chooser(std::move(costs), options, &observer);
  MOETAX_ASSIGN(ExpertParallel parallel, ExpertParallel::create(world, {.max_tokens = kTokens,
                                                                        .hidden = kHidden,
                                                                        .experts = kExperts,
                                                                        .topk = kTopK,
                                                                        .ep_size = ep_size,
                                                                        .observer = &chooser}));
  RoutingTable routing;
  sample_routing(std::vector<double>(kExperts, 1), kTopK, 1, world.rank() * kTokens, kTokens, routing);
  const RoutingTable* const layers[] = {&routing};
  MOETAX_ASSIGN(PageBuffer rows, PageBuffer::reserve(2 * kTokens * kHidden * 2));
  const Rows hidden{rows.data(), DType::kBf16, kTokens, kHidden};
  const Rows out{rows.data() + hidden.bytes(), DType::kBf16, kTokens, kHidden};
  const auto step = [&]() -> Result<DispatchLayout> {
    MOETAX_ASSIGN(Dispatched sent, parallel.exchange().dispatch(hidden, routing));
    return parallel.exchange().combine(std::move(sent.handle), routing, {}, out);
  };
  Ran ran;
  MOETAX_TRY(step());
  MOETAX_ASSIGN(ran.first, chooser.review(parallel, layers));
  ran.algorithm = parallel.exchange().algorithm();
  MOETAX_TRY(step());
  MOETAX_ASSIGN(ran.second, chooser.review(parallel, layers, {world.rank() * 25, 100}));
  MOETAX_ASSIGN(ran.traffic, gather_traffic(parallel, layers));
  ran.exchanges = observer.exchanges;
  ran.passed_on = observer.entered > 0 && observer.entered == observer.left;
  return ran;
}

std::vector<Ran> run_all(int ep_size, const ExchangePolicyOptions& options = {}) {
  std::vector<Ran> ran(kRanks);
  const auto outcomes = run_threads({.ranks = kRanks, .ranks_per_node = kPerNode}, [&](Communicator& world) {
    auto result = run_rank(world, ep_size, options);
    if (!result) {
      ADD_FAILURE() << result.error().message;
      return 1;
    }
    ran[static_cast<std::size_t>(world.rank())] = std::move(*result);
    return 0;
  });
  EXPECT_TRUE(outcomes.has_value());
  return ran;
}

TEST(ExchangeChooser, AllRanksChangeToWhatTheFirstChose) {
  const std::vector<Ran> ran = run_all(0);
  for (const Ran& of_rank : ran) {
    EXPECT_EQ(of_rank.algorithm, ExchangeAlgorithm::kTwoLevel);
    ASSERT_TRUE(of_rank.first);
    EXPECT_EQ(of_rank.first->from, ExchangeAlgorithm::kFlat);
    EXPECT_EQ(of_rank.first->to, ExchangeAlgorithm::kTwoLevel);
    EXPECT_EQ(of_rank.exchanges, 4);
    EXPECT_TRUE(of_rank.passed_on);
  }
  EXPECT_FALSE(ran[0].first->why.empty());
  ASSERT_TRUE(ran[0].traffic);
  EXPECT_FALSE(ran[1].traffic);
  const Traffic& traffic = *ran[0].traffic;
  EXPECT_EQ(traffic.tokens, std::vector<std::int64_t>(kRanks, kTokens));
  std::int64_t choices = 0;
  for (const std::int64_t count : traffic.choices) choices += count;
  EXPECT_EQ(choices, kRanks * kTokens * kTopK);
}

TEST(ExchangeChooser, ALimitOnTheTaxIsHeldAgainstAllRanks) {
  const std::vector<Ran> ran = run_all(0, {.tax_share = 0.1});
  ASSERT_TRUE(ran[0].second);
  EXPECT_EQ(ran[0].second->why.find("the tax was 37.5 % of a step, beyond the limit of 10.0 %"), 0u)
      << ran[0].second->why;
  EXPECT_FALSE(run_all(0, {.tax_share = 0.4})[0].second);
}

// Two replicas, each on a node of its own: nothing crosses, so there is nothing to choose.
TEST(ExchangeChooser, ReplicasInsideNodesStayAsTheyAre) {
  const std::vector<Ran> ran = run_all(2);
  for (const Ran& of_rank : ran) EXPECT_EQ(of_rank.algorithm, ExchangeAlgorithm::kFlat);
  ASSERT_TRUE(ran[0].traffic);
  EXPECT_EQ(ran[0].traffic->choices_at(0, 2), 0);
  EXPECT_EQ(ran[0].traffic->choices_at(2, 0), 0);
  EXPECT_GT(ran[0].traffic->choices_at(2, 3), 0);
}

}  // namespace
}  // namespace moetax::test
