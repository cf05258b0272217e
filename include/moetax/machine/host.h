// What this machine is: processor, cores, caches, memory, pages. And where a rank's threads should run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "moetax/base/ids.h"
#include "moetax/base/result.h"

namespace moetax {

struct HostInfo {
  std::string cpu;                  // model name
  std::string isa;                  // the widest of: avx512-bf16+amx, avx512-bf16, avx512, avx2, neon, baseline
  bool bf16 = false;                // native bf16 dot products
  int cores = 1;                    // physical cores this process may use; a cgroup's CPU quota counts, rounded down
  int numa_nodes = 1;               // that have such cores
  std::size_t l2_bytes = 0;         // per core; 0 when unknown
  std::size_t l3_bytes = 0;         // per cache; 0 when unknown
  std::size_t memory_bytes = 0;     // of the machine, or the cgroup's limit if that is less
  std::size_t available_bytes = 0;  // MemAvailable, or what the cgroup leaves if that is less
  std::string kernel;
  std::string huge_pages;  // "private: THP madvise; shared: shmem THP never, 0 hugetlbfs pages of 2048 KiB free"
};

// Reads /proc, /sys and CPUID; starts no thread, changes nothing, takes a few milliseconds. The cores a process may use
// are those of its first call of either function here; later pinning does not shrink them. Safe from any thread.
HostInfo probe_host();

// Binds the calling thread, and the threads it starts later, to `threads` cores for `rank` of the `ranks` on this
// machine, and its new memory to their NUMA node; ranks spread over NUMA nodes and never share a core. Leaves placement
// to the kernel when the ranks do not all fit on the cores, or when a CPU quota and not a cpuset limits the process.
// Returns one line that says what was done: "CPUs 2-3, NUMA node 0", "not pinned: 8 threads on 2 cores".
// Linux binds threads one by one, so call it before the rank's own threads exist. 0 <= rank < ranks, threads > 0.
std::string pin_rank(Rank rank, int ranks, int threads);

}  // namespace moetax
