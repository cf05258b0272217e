// What the rank of this thread is at, to be read by a signal handler that interrupted it.
#pragma once

#include <cstddef>

#include "moetax/transport/communicator.h"
#include "transport/roster.h"

namespace moetax {

class Awaited;

struct WaitBoard {
  const RankState* self = nullptr;  // of the rank that this thread is; its operation is kept there
  Rank world_rank = kNoRank;
  const Communicator* comm = nullptr;  // while it waits: where, and for what
  const Awaited* awaited = nullptr;
};

WaitBoard& wait_board();

}  // namespace moetax
