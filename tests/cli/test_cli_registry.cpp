// The tables that `bench` and `info` read.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "cli/registry.h"

namespace moetax::cli {
namespace {

// What an entry starts is what its name says, and its probe tells the truth on a machine that runs the tests.
TEST(Registry, EveryTransportStartsRanksUnderItsName) {
  std::set<std::string> names;
  for (const TransportEntry& entry : transports()) {
    EXPECT_TRUE(names.insert(entry.name).second) << entry.name;
    EXPECT_STRNE(entry.what, "");
    const Result<std::string> usable = entry.probe();
    if (!usable) {
      EXPECT_EQ(usable.error().code, ErrorCode::kUnavailable);
      EXPECT_NE(usable.error().message, "");
      continue;
    }
    if (!entry.start) continue;  // another program does
    const std::string name = entry.name;
    const auto outcomes = entry.start(
        {.ranks = 3}, [&](Communicator& comm) { return comm.transport() == name && comm.size() == 3 ? 40 : 41; });
    ASSERT_TRUE(outcomes) << outcomes.error().message;
    ASSERT_EQ(outcomes->size(), 3u);
    for (const RankOutcome& outcome : *outcomes) EXPECT_EQ(outcome.exit_status, 40) << name;
  }
  EXPECT_TRUE(names.contains("local-processes") && names.contains("mpi"));
}

TEST(Registry, ExchangesHaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (const ExchangeEntry& entry : exchanges()) {
    EXPECT_TRUE(names.insert(entry.name).second) << entry.name;
    EXPECT_STRNE(entry.what, "");
    EXPECT_TRUE(entry.probe());
  }
  EXPECT_TRUE(names.contains("flat") && names.contains("two-level"));
}

}  // namespace
}  // namespace moetax::cli
