// Measures what links cost: the messages and copies that exchanges are made of, over message sizes.
#pragma once

#include <functional>
#include <string>

#include "moetax/cost/machine_costs.h"
#include "moetax/transport/communicator.h"

namespace moetax::cli {

struct CalibrateProgress {
  std::function<void(const std::string&)> say;  // what is being measured
  double deadline_s = 30;                       // of every wait
};

// Collective. Each fills in the same on all ranks; every time is the median over a number
// of turns of the slowest rank's, and all ranks meet before each turn.
// Copies, memory and messages: every class but the streams. Ranks, nodes and the fits are filled in too.
Result<void> measure_links(Communicator& comm, const CalibrateProgress& progress, MachineCosts& machine);

// What only an exchange shows: its streams of rows between nodes, and its calls without rows (calibrate_calls.cpp).
Result<void> measure_calls(Communicator& comm, const CalibrateProgress& progress, MachineCosts& machine);

}  // namespace moetax::cli
