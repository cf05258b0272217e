// Where the ranks of a launched job are: what of a bench's options only the ranks together know.
#pragma once

#include "cli/bench_options.h"
#include "moetax/base/result.h"
#include "moetax/transport/communicator.h"

namespace moetax::cli {

// Collective. Fills in nodes, hosts, this node's ranks, and the threads of a rank if they were not given: its part of
// the cores the node's ranks may use, or those the launcher gave it alone. kUsage if the job is not of options.ranks.
Result<void> settle(BenchOptions& options, int cores, Communicator& world);

}  // namespace moetax::cli
