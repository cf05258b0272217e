// bench --decompose: every exchange on the same routing, measured beside its predicted terms.
#pragma once

#include <vector>

#include "cli/bench_options.h"
#include "moetax/base/matrix.h"
#include "moetax/base/result.h"
#include "moetax/cost/traffic.h"
#include "moetax/layer/expert_parallel.h"
#include "moetax/report/bill.h"
#include "moetax/route/routing_table.h"

namespace moetax::cli {

// Collective, while no handle or layout is alive. Dispatches `hidden` and combines into `out`, some times with each
// exchange; the one that was set before is set again. Rank 0, which has `traffic` and costs, gets the table, the
// others nothing.
Result<std::vector<BillDecomposition>> decompose(ExpertParallel& parallel, const RoutingTable& routing,
                                                 ConstRows hidden, Rows out, const MachineCosts* costs,
                                                 const std::optional<Traffic>& traffic);

}  // namespace moetax::cli
