// What is refused, what it is called, and that nobody hangs because of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "exchange/conformance.h"
#include "exchange/world.h"

namespace moetax::test {
namespace {

using testing::HasSubstr;

const Scenario kSmall{.tokens = {6, 6}, .hidden = 8, .experts = 4, .topk = 2};

template <class T>
void expect_error(const Result<T>& result, ErrorCode code, const std::string& text) {
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, code) << result.error().message;
  EXPECT_THAT(result.error().message, HasSubstr(text));
}

// Rank 1's routing is spoilt; it says why, and rank 0 names it.
void expect_bad_choice(std::int32_t expert, const std::string& text) {
  on_threads(2, [&](Communicator& comm) {
    auto x = Exchange::create(comm, kSmall.options(comm.rank()));
    ASSERT_TRUE(ok(x));
    RoutingTable routing = kSmall.routing(comm.rank());
    routing.expert()(3, 0) = 1;
    routing.expert()(3, 1) = comm.rank() == 1 ? expert : 2;
    const auto sent = x->dispatch(kSmall.rows(0, comm.rank()).view(), routing);
    if (comm.rank() == 1) {
      expect_error(sent, ErrorCode::kBadInput, text);
    } else {
      ASSERT_FALSE(sent);
      EXPECT_EQ(sent.error().code, ErrorCode::kPeerFailed);
      EXPECT_EQ(sent.error().rank, 1);
    }
  });
}

TEST(ExchangeErrors, ExpertOutOfRange) {
  expect_bad_choice(4, "token 3 chose expert 4, there are experts 0 to 3: [1, 4]");
  expect_bad_choice(-1, "token 3 chose expert -1");
}

TEST(ExchangeErrors, ExpertChosenTwice) {
  expect_bad_choice(1, "token 3 chose expert 1 twice: [1, 1]");
}

TEST(ExchangeErrors, RanksThatDisagreeOnTheShape) {
  on_threads(2, [](Communicator& comm) {
    ExchangeOptions options = kSmall.options(comm.rank());
    if (comm.rank() == 1) options.hidden = 16;
    const auto x = Exchange::create(comm, options);
    ASSERT_FALSE(x);
    EXPECT_EQ(x.error().code, ErrorCode::kPeerFailed);
    EXPECT_THAT(x.error().message, testing::AllOf(HasSubstr("H=8"), HasSubstr("H=16")));
  });
}

TEST(ExchangeErrors, MoreRowsThanCanBeNumbered) {
  on_threads(8, [](Communicator& comm) {
    ExchangeOptions options = kSmall.options(0);
    options.max_tokens = std::int64_t{1} << 24;
    options.experts = 256;
    options.topk = 32;
    options.hidden = 1;
    // All find it out; one that is slow may hear it from another first.
    const auto x = Exchange::create(comm, options);
    ASSERT_FALSE(x);
    EXPECT_THAT(x.error().message, HasSubstr("4294967296 rows, more than the 2147483647"));
  });
}

TEST(ExchangeErrors, OptionsOutOfRange) {
  const auto refused = [](auto change, const std::string& text) {
    on_threads(2, [&](Communicator& comm) {
      ExchangeOptions options = kSmall.options(comm.rank());
      change(options);
      expect_error(Exchange::create(comm, options), ErrorCode::kUsage, text);
    });
  };
  refused([](ExchangeOptions& o) { o.max_tokens = -1; }, "max_tokens = -1");
  refused([](ExchangeOptions& o) { o.hidden = 0; }, "hidden = 0");
  refused([](ExchangeOptions& o) { o.experts = 0; }, "experts = 0");
  refused([](ExchangeOptions& o) { o.topk = 5; }, "topk = 5, possible are 1 to 4");
  refused([](ExchangeOptions& o) { o.in_flight = 0; }, "in_flight = 0");
  refused([](ExchangeOptions& o) { o.threads = 0; }, "threads = 0");
}

// Runs one call that every rank gets wrong in the same way, on a fresh exchange with a dispatch done.
template <class Call>
void expect_usage(const std::string& text, Call call) {
  on_threads(2, [&](Communicator& comm) {
    auto x = Exchange::create(comm, kSmall.options(comm.rank()));
    ASSERT_TRUE(ok(x));
    const RoutingTable routing = kSmall.routing(comm.rank());
    auto sent = x->dispatch(kSmall.rows(0, comm.rank()).view(), routing);
    ASSERT_TRUE(ok(sent));
    call(*x, *sent, routing, [&](const auto& result) { expect_error(result, ErrorCode::kUsage, text); });
  });
}

TEST(ExchangeErrors, MoreHandlesThanInFlight) {
  expect_usage("in_flight", [](Exchange& x, Dispatched&, const RoutingTable& routing, auto expect) {
    expect(x.dispatch(kSmall.rows(0, 0).view(), routing));
  });
}

TEST(ExchangeErrors, TokensOfAnotherShape) {
  expect_usage("tokens are [6, 9] bf16, expected [6, 8] bf16",
               [](Exchange& x, Dispatched&, const RoutingTable& routing, auto expect) {
                 expect(x.dispatch(RowStore(DType::kBf16, 6, 9).view(), routing));
               });
  expect_usage("7 tokens, the exchange was made for at most 6",
               [](Exchange& x, Dispatched&, const RoutingTable&, auto expect) {
                 RoutingTable large;
                 large.resize(7, 2);
                 expect(x.dispatch(RowStore(DType::kBf16, 7, 8).view(), large));
               });
}

TEST(ExchangeErrors, HandleUsedTwice) {
  expect_usage("combine: the handle or layout is empty",
               [](Exchange& x, Dispatched& sent, const RoutingTable& routing, auto expect) {
                 RowStore out(DType::kBf16, 6, 8);
                 ASSERT_TRUE(ok(x.combine(std::move(sent.handle), routing, {}, out.view())));
                 expect(x.combine(std::move(sent.handle), routing, {}, out.view()));
               });
  expect_usage("release: the handle or layout is empty",
               [](Exchange& x, Dispatched& sent, const RoutingTable&, auto expect) {
                 ASSERT_TRUE(ok(x.release(std::move(sent.handle))));
                 expect(x.release(std::move(sent.handle)));
               });
}

TEST(ExchangeErrors, OutputsAndRoutingOfAnotherShape) {
  expect_usage("combine: outputs are [5, 8] bf16",
               [](Exchange& x, Dispatched& sent, const RoutingTable& routing, auto expect) {
                 RowStore out(DType::kBf16, 5, 8);
                 expect(x.combine(std::move(sent.handle), routing, {}, out.view()));
               });
  expect_usage("combine: the routing table is [1, 2], expected [6, 2]",
               [](Exchange& x, Dispatched& sent, const RoutingTable&, auto expect) {
                 RowStore out(DType::kBf16, 6, 8);
                 RoutingTable other;
                 other.resize(1, 2);
                 expect(x.combine(std::move(sent.handle), other, {}, out.view()));
               });
  expect_usage("combine_grad: d_gate [0]", [](Exchange& x, Dispatched& sent, const RoutingTable&, auto expect) {
    expect(x.combine_grad(std::move(sent.handle), {}, {}, {}));
  });
}

TEST(ExchangeErrors, LayoutOfAnotherExchange) {
  on_threads(2, [](Communicator& comm) {
    auto x = Exchange::create(comm, kSmall.options(comm.rank()));
    auto y = Exchange::create(comm, kSmall.options(comm.rank()));
    ASSERT_TRUE(ok(x) && ok(y));
    auto sent = x->dispatch(kSmall.rows(0, comm.rank()).view(), kSmall.routing(comm.rank()));
    ASSERT_TRUE(ok(sent));
    expect_error(y->release(std::move(sent->handle)), ErrorCode::kUsage, "of another exchange");
  });
}

// Two dispatches are in flight; then the ranks go different ways. Each names the other and both calls.
template <class OnRank>
void expect_different_calls(const std::string& of_rank0, const std::string& of_rank1, OnRank call) {
  on_threads(2, [&](Communicator& comm) {
    ExchangeOptions options = kSmall.options(comm.rank());
    options.in_flight = 3;
    auto x = Exchange::create(comm, options);
    ASSERT_TRUE(ok(x));
    std::vector<Dispatched> sent;
    for (int i = 0; i < 2; ++i) {
      auto one = x->dispatch(kSmall.rows(0, comm.rank()).view(), kSmall.routing(comm.rank()));
      ASSERT_TRUE(ok(one));
      sent.push_back(std::move(*one));
    }
    const std::optional<Error> error = call(*x, sent, comm.rank());
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code, ErrorCode::kPeerFailed);
    EXPECT_THAT(error->message, testing::AllOf(HasSubstr("rank 0 called " + of_rank0), HasSubstr("exchange #3"),
                                               HasSubstr("rank 1 called " + of_rank1)));
  });
}

template <class T>
std::optional<Error> error_of(Result<T> result) {
  return result ? std::nullopt : std::optional<Error>(std::move(result.error()));
}

TEST(ExchangeErrors, RanksThatMakeDifferentCalls) {
  RowStore out[] = {{DType::kBf16, 6, 8}, {DType::kBf16, 6, 8}};
  expect_different_calls("combine of dispatch #1 with buffers 0", "combine of dispatch #2 with buffers 1",
                         [&](Exchange& x, std::vector<Dispatched>& sent, Rank rank) {
                           return error_of(x.combine(std::move(sent[static_cast<std::size_t>(rank)].handle),
                                                     kSmall.routing(rank), {}, out[rank].view()));
                         });
  expect_different_calls(
      "combine of dispatch #1", "dispatch with buffers 2", [&](Exchange& x, std::vector<Dispatched>& sent, Rank rank) {
        return rank == 0 ? error_of(x.combine(std::move(sent[0].handle), kSmall.routing(0), {}, out[0].view()))
                         : error_of(x.dispatch(kSmall.rows(0, 1).view(), kSmall.routing(1)));
      });
  expect_different_calls("redispatch of dispatch #1", "redispatch of dispatch #2",
                         [&](Exchange& x, std::vector<Dispatched>& sent, Rank rank) {
                           return error_of(x.redispatch(sent[static_cast<std::size_t>(rank)].handle.layout(),
                                                        kSmall.rows(0, rank).view()));
                         });
}

TEST(ExchangeErrors, DroppedHandlesGiveTheirBuffersBack) {
  on_threads(2, [](Communicator& comm) {
    auto x = Exchange::create(comm, kSmall.options(comm.rank()));
    ASSERT_TRUE(ok(x));
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(ok(x->dispatch(kSmall.rows(0, comm.rank()).view(), kSmall.routing(comm.rank()))));
    }
    run_round(*x, kSmall, comm.rank());
  });
}

TEST(ExchangeErrors, HandleMayOutliveItsExchange) {
  on_threads(2, [](Communicator& comm) {
    DispatchHandle kept;
    {
      auto x = Exchange::create(comm, kSmall.options(comm.rank()));
      ASSERT_TRUE(ok(x));
      auto sent = x->dispatch(kSmall.rows(0, comm.rank()).view(), kSmall.routing(comm.rank()));
      ASSERT_TRUE(ok(sent));
      kept = std::move(sent->handle);
    }
    EXPECT_EQ(kept.layout().tokens(), 6);
  });
}

}  // namespace
}  // namespace moetax::test
