// Layers under load: requests that come and go, at several levels, beside replicas that exchange nothing.
#pragma once

#include <vector>

#include "cli/bench_options.h"
#include "cli/layer_stack.h"
#include "cli/routing_source.h"
#include "moetax/base/result.h"
#include "moetax/report/bill.h"
#include "moetax/transport/communicator.h"

namespace moetax::cli {

// Collective over `world`: runs every level that the options ask for with layers of its own. On rank 0 the levels.
//
// A rank's requests join its batch between steps, as far as --tokens of it has room; before a step all ranks tell each
// other whether anybody has tokens, as a serving system does. Replicas hold all experts each and tell nobody anything.
Result<std::vector<BillStress>> run_stress(const BenchOptions& options, const RoutingSource& routes,
                                           Communicator& world, const Say& say);

}  // namespace moetax::cli
