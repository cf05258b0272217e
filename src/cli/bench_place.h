// Where the ranks of a launched job are: what of a bench's options only the ranks together know.
#pragma once

#include <string>
#include <vector>

#include "cli/bench_options.h"
#include "moetax/base/result.h"
#include "moetax/transport/communicator.h"

namespace moetax::cli {

struct JobPlaces {
  std::vector<std::string> hosts;  // by node
  std::vector<Rank> here;          // the ranks of this node
  bool bound_by_launcher = false;  // each of them to cores of its own
};

// Collective.
Result<JobPlaces> find_places(Communicator& world, double deadline_s);

// kUsage if MPI joined another number of ranks than the launcher says.
Result<void> check_size(int ranks, const Communicator& world);

// Collective. Fills in nodes, hosts, this node's ranks, and the threads of a rank if they were not given: its part of
// the cores the node's ranks may use, or those the launcher gave it alone. kUsage if the job is not of options.ranks.
Result<void> settle(BenchOptions& options, int cores, Communicator& world);

}  // namespace moetax::cli
