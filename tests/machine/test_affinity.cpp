// A program of its own: the first call in a process fixes the cores it may use.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sched.h>

#include "moetax/machine/host.h"

namespace moetax {
namespace {

TEST(Affinity, OneProcessorLeftIsOneCore) {
  cpu_set_t allowed, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  int last = CPU_SETSIZE - 1;
  while (!CPU_ISSET(last, &allowed)) --last;
  CPU_ZERO(&one);
  CPU_SET(last, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);

  EXPECT_EQ(probe_host().cores, 1);
  EXPECT_EQ(probe_host().numa_nodes, 1);
  EXPECT_EQ(pin_rank(0, 2, 1), "not pinned: 2 threads on 1 core");
  EXPECT_THAT(pin_rank(0, 1, 1), testing::AnyOf(testing::StartsWith("CPU " + std::to_string(last) + ", NUMA node "),
                                                testing::HasSubstr("CPU quota")));
}

}  // namespace
}  // namespace moetax
