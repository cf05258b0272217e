// Ranks that an MPI launcher started, on one machine or many: inside a node they share memory as local ranks do,
// between nodes MPI carries flags and messages. A library of its own, moetax::mpi, there where moetax was built with
// MPI.
//
// MPI_Init and MPI_Finalize are the program's business. What is needed: MPI_THREAD_FUNNELED, and calls from the thread
// that initialised MPI. Nothing here blocks inside MPI: every call ends by its deadline.
//
//   int provided;
//   MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
//   auto outcomes = moetax::run_mpi(MPI_COMM_WORLD, {}, [](moetax::Communicator& world) { ...; return 0; });
//   const bool fine = outcomes && std::all_of(... outcome.exit_status == 0 ...);
//   if (!fine) _exit(5);  // MPI_Finalize may wait for ranks that are gone
//   MPI_Finalize();
#pragma once

#include <mpi.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "moetax/base/clock.h"
#include "moetax/base/result.h"
#include "moetax/transport/communicator.h"
#include "moetax/transport/local.h"

namespace moetax {

struct MpiOptions {
  int ranks_per_node = 0;  // > 0: ranks [n * ranks_per_node, ...) share memory with nobody else: nodes, on one machine
  double setup_s = 30;     // until a rank that does not come to the set-up is given up
  double linger_s = 10;  // how long a rank whose body has returned waits for the others; half a second once one failed
  bool watch_parent = false;  // the process that started this one is the launcher: without it the rank stops
};

// Collective over `comm`, which is only duplicated: the ranks of the new world are those of `comm`. Ranks are on one
// node if they could really hand each other a descriptor, whatever their host names say. Estimates the clocks' offsets.
// kUsage before MPI_Init, after MPI_Finalize, or with MPI_THREAD_SINGLE; kPeerFailed with who did not come by
// the deadline; kUnavailable without shared memory. After a kPeerFailed MPI_Finalize may hang: leave by _exit().
Result<std::unique_ptr<Communicator>> join_mpi(MPI_Comm comm, const MpiOptions& options = {});

// The same, then body(world) on this rank; an exception counts as fail(). Returns when all ranks have returned from
// their bodies, died, or outlived options.linger_s (given_up), with the outcome of each. A rank whose process is gone
// has exit_status -1. `report` then runs on rank 0 while the others wait for it, a second at most: what it prints is
// out before a launcher hears of any exit status. May be empty.
Result<std::vector<RankOutcome>> run_mpi(MPI_Comm comm, const MpiOptions& options,
                                         const std::function<int(Communicator&)>& body,
                                         const std::function<void(const std::vector<RankOutcome>&)>& report = {});

}  // namespace moetax
