// Whether a run fits into this machine's memory, known before anything is started.
#pragma once

#include "cli/bench_options.h"
#include "moetax/base/result.h"

namespace moetax::cli {

// Bytes that all ranks together will touch: weights, tokens, exchanged rows at the mean load, and what a backward
// keeps.
double memory_needed(const BenchOptions& options);

// kUnavailable with needed, available, and the largest --experts that fits.
Result<void> check_memory(const BenchOptions& options, double available_bytes);

}  // namespace moetax::cli
