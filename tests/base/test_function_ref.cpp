#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "moetax/base/function_ref.h"

namespace moetax {
namespace {

int apply(FunctionRef<int(int)> f, int x) {
  return f(x);
}
int twice(int x) {
  return 2 * x;
}

TEST(FunctionRef, CallsLambdasFunctionsAndConstObjects) {
  int offset = 3;
  EXPECT_EQ(apply([&](int x) { return x + offset; }, 4), 7);
  EXPECT_EQ(apply(&twice, 4), 8);
  const auto negate = [](int x) { return -x; };
  EXPECT_EQ(apply(negate, 4), -4);
}

TEST(FunctionRef, RefersToTheObjectInsteadOfCopyingIt) {
  struct Counter {
    int calls = 0;
    int operator()(int) { return ++calls; }
    Counter() = default;
    Counter(const Counter&) = delete;
  } counter;
  EXPECT_EQ(apply(counter, 0), 1);
  EXPECT_EQ(apply(counter, 0), 2);
  EXPECT_EQ(counter.calls, 2);
}

TEST(FunctionRef, CopiesReferToTheSameObject) {
  int calls = 0;
  const auto count = [&] { ++calls; };
  const FunctionRef<void()> first(count);
  const FunctionRef<void()> second(first);
  first();
  second();
  EXPECT_EQ(calls, 2);
}

TEST(FunctionRef, PassesMoveOnlyArgumentsAndReferences) {
  const auto take = [](std::unique_ptr<int> value, int& out) { out = *value; };
  const FunctionRef<void(std::unique_ptr<int>, int&)> ref(take);
  int out = 0;
  ref(std::make_unique<int>(9), out);
  EXPECT_EQ(out, 9);
}

}  // namespace
}  // namespace moetax
