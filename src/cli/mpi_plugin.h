// The command's plug-in for MPI: a shared object of its own, so that `moetax` starts where there is no MPI, and one for
// each MPI it is built with. C++ objects cross the border, so both sides must come from one build.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "moetax/base/result.h"
#include "moetax/transport/communicator.h"
#include "moetax/transport/local.h"

namespace moetax::cli {

struct MpiRun {
  int ranks_per_node = 0;  // see MpiOptions
  double deadline_s = 30;  // for MPI to start, for all ranks to join, and to linger
};

struct MpiPlugin {
  static constexpr std::uint32_t kAbi = 1;

  std::uint32_t abi;
  const char* build;         // kBuildId of the other side
  std::string (*library)();  // "Open MPI v4.1.4": the library that is loaded, not the one it was built with

  // MPI_Init, then run_mpi() over all ranks of the job. In its body SIGTERM makes a rank say in a line what it was at
  // and whom it missed, before it dies. A MPI_Init that does not return ends the process with a message and 5.
  Result<std::vector<RankOutcome>> (*run)(const MpiRun& options, const std::function<int(Communicator&)>& body,
                                          const std::function<void(const std::vector<RankOutcome>&)>& report);
  // The last call: through MPI_Finalize if the job is `healthy`, and returns. Otherwise MPI might wait for ranks that
  // are gone, so the process ends here.
  void (*leave)(int exit_code, bool healthy);
};

inline constexpr const char* kMpiPluginFile = "moetax-transport-mpi.so";
inline constexpr const char* kMpiPluginEntry = "moetax_mpi_plugin";
using MpiPluginEntry = const MpiPlugin* (*)();

// The plug-in, loaded by the first call and never unloaded. kUnavailable says what is missing and where it was looked
// for.
Result<const MpiPlugin*> mpi_plugin();

}  // namespace moetax::cli
