// Loops over rows on all of a rank's threads or on one.
#pragma once

#include "moetax/base/parallel.h"

namespace moetax {

// parallel_for, but with the whole team or none: the OpenMP runtime makes a team of another size anew, which allocates
// and costs more than a few rows do. `grain` rows are worth a thread.
inline void for_rows(std::int64_t rows, int threads, std::int64_t grain,
                     FunctionRef<void(std::int64_t begin, std::int64_t end)> body) {
  parallel_for(rows, rows >= threads * grain ? threads : 1, grain, body);
}

}  // namespace moetax
