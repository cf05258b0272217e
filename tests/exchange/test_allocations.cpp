// In the steady state no call allocates, also when routing and numbers of tokens change from step to step.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "exchange/conformance.h"
#include "exchange/world.h"

namespace {
std::atomic<bool> counting{false};
std::atomic<int> allocations{0};

[[gnu::noinline]] void* counted(std::size_t bytes) {
  if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (!memory) std::abort();
  return memory;
}
}  // namespace

[[gnu::noinline]] void* operator new(std::size_t bytes) {
  return counted(bytes);
}
[[gnu::noinline]] void* operator new[](std::size_t bytes) {
  return counted(bytes);
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return counted(bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete[](void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace moetax::test {
namespace {

// Everything a round needs, made beforehand.
struct Step {
  RoutingTable routing;
  RowStore tokens, out;
  std::vector<float> d_gate, d_tokens, d_weight;

  Step(const Scenario& s, Rank rank)
      : routing(s.routing(rank)),
        tokens(s.rows(0, rank)),
        out(s.dtype, tokens.rows, s.hidden),
        d_gate(s.batch_rows(rank).size()),
        d_tokens(static_cast<std::size_t>(tokens.rows * s.hidden)),
        d_weight(static_cast<std::size_t>(tokens.rows * s.topk)) {}

  bool run(Exchange& x) {
    auto sent = x.dispatch(tokens.view(), routing);
    if (!sent) return false;
    auto layout = x.combine(std::move(sent->handle), routing, tokens.view(), out.view());
    if (!layout) return false;
    auto again = x.redispatch(*layout, tokens.view());
    if (!again || !x.release(std::move(again->handle))) return false;
    auto back = x.dispatch_grad(*layout, routing, tokens.view());
    if (!back) return false;
    const MatrixView<float> d_tokens_view(d_tokens.data(), tokens.rows, tokens.cols);
    const MatrixView<float> d_weight_view(d_weight.data(), tokens.rows, routing.topk());
    return x.combine_grad(std::move(back->handle), d_gate, d_tokens_view, d_weight_view).has_value();
  }
};

TEST(Allocations, NoneInTheSteadyState) {
  on_threads(2, [](Communicator& comm) {
    const Rank rank = comm.rank();
    Scenario s{.tokens = {360, 30}, .hidden = 40, .experts = 8, .topk = 3};
    auto x = Exchange::create(comm, s.options(rank));
    ASSERT_TRUE(ok(x));
    std::vector<Step> steps;
    for (s.round = 0; s.round < 6; ++s.round) {
      s.tokens = {static_cast<std::int64_t>(60 * (s.round + 1)), static_cast<std::int64_t>(30 - 5 * s.round)};
      steps.emplace_back(s, rank);
    }
    // Rank 0 comes to have so many tokens that it pushes its rows instead of offering them.
    // The first step warms up and the last keeps both ranks busy: while rank 0 counts, nothing but steps runs.
    ASSERT_TRUE(steps.front().run(*x));
    if (rank == 0) counting = true;
    bool fine = true;
    for (std::size_t i = 1; i + 1 < steps.size(); ++i) fine = steps[i].run(*x) && fine;
    if (rank == 0) counting = false;
    EXPECT_TRUE(steps.back().run(*x) && fine);
  });
  EXPECT_EQ(allocations, 0);
}

}  // namespace
}  // namespace moetax::test
