// The one place where moetax uses threads inside a rank: a static split of an index range over the OpenMP team that
// the GEMM library uses too, so that no second pool competes for the cores.
#pragma once

#include <cstdint>

#include "moetax/base/function_ref.h"

namespace moetax {

// Calls body(begin, end) with disjoint ranges that cover [0, count), on up to `threads` threads; returns when all have.
// Ranges depend only on count, threads and grain (a range holds a multiple of `grain` indices but for the last). With
// one thread, or count <= grain, body runs on the caller's thread and no team is started. body must not throw.
void parallel_for(std::int64_t count, int threads, std::int64_t grain,
                  FunctionRef<void(std::int64_t begin, std::int64_t end)> body);

}  // namespace moetax
