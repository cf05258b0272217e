// Test programs whose ranks an MPI launcher starts. Every process runs the same tests at the same time; a test of R
// ranks takes the first R of them, on a communicator of its own, and the others wait for its outcome.
#pragma once

#include <mpi.h>

#include <functional>
#include <vector>

#include "moetax/base/result.h"
#include "moetax/transport/local.h"
#include "moetax/transport/mpi.h"

namespace moetax::testing_mpi {

int num_processes();

// run_mpi() on `ranks` of the processes, or why not. Collective over all of them, and the same for all.
Result<std::vector<RankOutcome>> run_on(int ranks, const MpiOptions& options,
                                        const std::function<int(Communicator&)>& body);

}  // namespace moetax::testing_mpi
