// What the parts of the conformance suite are written with; see conformance.h.
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

}  // namespace moetax
