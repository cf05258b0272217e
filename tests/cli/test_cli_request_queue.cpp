// Requests by hand: who joins when, and how long it took.
#include <gtest/gtest.h>

#include "cli/request_queue.h"

namespace moetax::cli {
namespace {

TEST(RequestQueue, APromptGoesAtOnceAndOutputTokenByToken) {
  RequestQueue queue({5, 2}, 8, {100});
  EXPECT_EQ(queue.begin_step(99), 0);
  EXPECT_FALSE(queue.done());
  EXPECT_EQ(queue.next_arrival_ns(), 100);
  EXPECT_EQ(queue.begin_step(100), 5);
  queue.end_step(1000);
  EXPECT_EQ(queue.begin_step(1000), 1);
  queue.end_step(2000);
  EXPECT_FALSE(queue.done());
  EXPECT_EQ(queue.begin_step(2000), 1);
  queue.end_step(3100);
  EXPECT_TRUE(queue.done());
  EXPECT_EQ(queue.tokens(), 7);
  EXPECT_EQ(queue.latency_us(), std::vector<double>{3});
}

TEST(RequestQueue, WhoDoesNotFitWaitsFromItsArrival) {
  RequestQueue queue({4, 0}, 9, {0, 0, 0, 500});
  EXPECT_EQ(queue.begin_step(0), 8);  // two, the third has no room
  queue.end_step(1000);
  EXPECT_EQ(queue.begin_step(1000), 8);
  queue.end_step(3000);
  EXPECT_TRUE(queue.done());
  EXPECT_EQ(queue.latency_us(), (std::vector<double>{1, 1, 3, 2.5}));
}

TEST(RequestQueue, ThoseThatRunKeepTheirPlaces) {
  RequestQueue queue({3, 2}, 4, {0, 0});
  EXPECT_EQ(queue.begin_step(0), 3);
  queue.end_step(1);
  EXPECT_EQ(queue.begin_step(1), 4);  // the second's prompt beside the first's token
  queue.end_step(2);
  EXPECT_EQ(queue.begin_step(2), 2);
  queue.end_step(3);
  EXPECT_EQ(queue.begin_step(3), 1);
  queue.end_step(4);
  EXPECT_TRUE(queue.done());
  EXPECT_EQ(queue.tokens(), 10);
}

TEST(RequestQueue, InAClosedLoopEachIsFollowedByTheNext) {
  RequestQueue queue({0, 1}, 4, {0, 0});
  queue.follow_with(3);
  std::vector<std::int64_t> tokens;
  for (std::int64_t now = 0; !queue.done(); now += 1000) {
    tokens.push_back(queue.begin_step(now));
    queue.end_step(now + 1000);
  }
  EXPECT_EQ(tokens, (std::vector<std::int64_t>{2, 2, 1}));
  EXPECT_EQ(queue.latency_us(), (std::vector<double>{1, 1, 1, 1, 1}));
}

}  // namespace
}  // namespace moetax::cli
