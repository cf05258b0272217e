// A verb whose ranks an MPI launcher started: this process is one of them.
#pragma once

#include <functional>

#include "cli/launched.h"
#include "cli/mpi_plugin.h"
#include "moetax/base/result.h"
#include "moetax/transport/communicator.h"

namespace moetax::cli {

// Tells the other ranks of an error, which is how it comes to the user; returns the exit code.
int told(Communicator& world, Error error);

// Runs body(world) on this rank of the job and returns the exit code. Whatever goes wrong on any of them is said once,
// by rank 0. Where the job is not healthy at the end the process ends here.
int run_launched_job(const LaunchedRank& launched, const MpiRun& job, const std::function<int(Communicator&)>& body);

}  // namespace moetax::cli
