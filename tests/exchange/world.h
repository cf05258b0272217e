// Runs a test's ranks as threads of this process.
#pragma once

#include <gtest/gtest.h>

#include <functional>

#include "moetax/transport/local.h"

namespace moetax::test {

inline void on_threads(int ranks, const std::function<void(Communicator&)>& body, int ranks_per_node = 0) {
  const auto outcomes = run_threads({.ranks = ranks, .ranks_per_node = ranks_per_node}, [&](Communicator& comm) {
    body(comm);
    return 0;
  });
  ASSERT_TRUE(outcomes.has_value()) << outcomes.error().message;
}

}  // namespace moetax::test
