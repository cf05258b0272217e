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
  std::string cpu;    // model name
  std::string isa;    // the widest of: avx512-bf16+amx, avx512-bf16, avx512, avx2, neon, baseline
  bool bf16 = false;  // native bf16 dot products
  int cores = 1;      // physical cores this process may use (affinity and cgroup quota respected)
  int numa_nodes = 1;
  std::size_t l2_bytes = 0;  // per core; 0 when unknown
  std::size_t l3_bytes = 0;  // per cache
  std::size_t memory_bytes = 0;
  std::size_t available_bytes = 0;  // MemAvailable, or what the cgroup leaves if that is less
  std::string kernel;
  std::string huge_pages;  // "private: THP madvise; shared: 4 KiB (shmem THP never, hugetlbfs 0 pages free)"
};

HostInfo probe_host();

// Binds the calling thread (and the threads it starts later) to `threads` cores for `rank` of `ranks` when all ranks
// fit on the cores, and its new memory to their NUMA node. Otherwise leaves placement to the kernel.
// Returns one line that says what was done: "cores 2-3, NUMA node 0", "not pinned: 8 threads on 2 cores".
std::string pin_rank(Rank rank, int ranks, int threads);

}  // namespace moetax
