#include "moetax/base/parallel.h"

#include <omp.h>

#include <algorithm>

namespace moetax {

void parallel_for(std::int64_t count, int threads, std::int64_t grain,
                  FunctionRef<void(std::int64_t, std::int64_t)> body) {
  if (count <= 0) return;
  const std::int64_t blocks = (count + grain - 1) / grain;
  const int shares = static_cast<int>(std::min<std::int64_t>(threads, blocks));
  if (shares <= 1) {
    body(0, count);
    return;
  }
  // Always the whole team: for another size the runtime would make a new one, which allocates.
#pragma omp parallel num_threads(threads)
  {
    // The team may be smaller than asked for: each thread takes every share that falls to it.
    for (int share = omp_get_thread_num(); share < shares; share += omp_get_num_threads()) {
      const std::int64_t begin = blocks * share / shares * grain;
      const std::int64_t end = std::min(count, blocks * (share + 1) / shares * grain);
      if (begin < end) body(begin, end);
    }
  }
}

}  // namespace moetax
