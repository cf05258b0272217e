// Whether this process was started as a rank by an MPI launcher (mpirun, mpiexec, srun), by what launchers leave in the
// environment. MPI itself is not asked: it may not be there.
#pragma once

#include <optional>

#include "moetax/base/ids.h"
#include "moetax/base/result.h"

namespace moetax::cli {

struct LaunchedRank {
  Rank rank = 0;
  int ranks = 0;  // 0: the launcher does not say
};

std::optional<LaunchedRank> launched_rank();

// How many ranks there are: what was typed (--ranks) or what the launcher started, which must agree; else 2.
Result<int> resolve_ranks(const std::optional<int>& typed, const std::optional<LaunchedRank>& launched);

}  // namespace moetax::cli
