#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sched.h>

#include <fstream>
#include <string>
#include <thread>

#include "moetax/machine/host.h"

namespace moetax {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using testing::StartsWith;

int affinity_count() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
}

std::string status_line(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key)) return line;
  }
  return {};
}

TEST(ProbeHost, DescribesThisMachine) {
  const HostInfo host = probe_host();
  EXPECT_FALSE(host.cpu.empty());
  EXPECT_THAT(host.isa, AnyOf("avx512-bf16+amx", "avx512-bf16", "avx512", "avx2", "neon", "baseline"));
  EXPECT_TRUE(host.bf16 || !host.isa.starts_with("avx512-bf16"));
  EXPECT_GE(host.cores, 1);
  EXPECT_LE(host.cores, affinity_count());
  EXPECT_GE(host.numa_nodes, 1);
  EXPECT_GT(host.memory_bytes, std::size_t{64} << 20);
  EXPECT_GT(host.available_bytes, 0u);
  EXPECT_LE(host.available_bytes, host.memory_bytes);
  EXPECT_THAT(host.kernel, StartsWith("Linux "));
  EXPECT_THAT(host.huge_pages,
              testing::AllOf(HasSubstr("private: THP "), HasSubstr("shmem THP "), HasSubstr("hugetlbfs")));
}

TEST(ProbeHost, StartsNoThreads) {
  const std::string before = status_line("Threads:");
  probe_host();
  EXPECT_EQ(status_line("Threads:"), before);
}

TEST(ProbeHost, ChangesNoBinding) {
  cpu_set_t before, after;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  probe_host();
  ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

TEST(PinRank, GivesRanksCoresOfTheirOwn) {
  const HostInfo host = probe_host();
  const int ranks = host.cores;
  cpu_set_t seen;
  CPU_ZERO(&seen);
  int pinned = 0;
  for (Rank rank = 0; rank < ranks; ++rank) {
    std::string text;
    cpu_set_t mine;
    // In a thread of its own: the binding ends with it.
    std::thread([&] {
      text = pin_rank(rank, ranks, 1);
      sched_getaffinity(0, sizeof mine, &mine);
    }).join();
    if (text.starts_with("not pinned: the cgroup's CPU quota")) continue;
    ASSERT_THAT(text, StartsWith("CPU")) << "rank " << rank;
    ++pinned;
    cpu_set_t shared;
    CPU_AND(&shared, &seen, &mine);
    EXPECT_EQ(CPU_COUNT(&shared), 0) << text;
    CPU_OR(&seen, &seen, &mine);
  }
  if (pinned == 0) GTEST_SKIP() << "a CPU quota limits this process: nothing is pinned";
  EXPECT_EQ(pinned, ranks);
  EXPECT_EQ(probe_host().cores, host.cores) << "pinning must not shrink what is seen later";
}

TEST(PinRank, LeavesTooManyThreadsAlone) {
  cpu_set_t before, after;
  sched_getaffinity(0, sizeof before, &before);
  const std::string text = pin_rank(1, 1000, 1000);
  sched_getaffinity(0, sizeof after, &after);
  EXPECT_THAT(text, StartsWith("not pinned: 1000000 threads on "));
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

}  // namespace
}  // namespace moetax
