// Whether a run fits into this machine's memory, known before anything is started.
#pragma once

#include "cli/bench_options.h"
#include "moetax/base/result.h"
#include "moetax/machine/host.h"

namespace moetax::cli {

// Bytes that the ranks of this node together will touch, a little more rather than less: weights, gradients, tokens,
// exchanged rows, what a backward keeps, scratch, the ledgers, code and what oneDNN generates. Without native bf16
// products bf16 weights are converted in tiles, which takes more.
double memory_needed(const BenchOptions& options, bool native_bf16);

// kUnavailable with needed, available, and the largest --experts that fits.
Result<void> check_memory(const BenchOptions& options, const HostInfo& host);

}  // namespace moetax::cli
