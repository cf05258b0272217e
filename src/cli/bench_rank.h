// What one rank of a bench does, from its first weight to its ledger.
#pragma once

#include <optional>

#include "cli/bench_options.h"
#include "cli/routing_source.h"
#include "moetax/base/result.h"
#include "moetax/report/bill.h"
#include "moetax/transport/communicator.h"

namespace moetax::cli {

// What rank 0 knows when all are done.
struct BenchOutcome {
  Bill bill;
  std::vector<RankLedger> ledgers;
  std::vector<Traffic> traffic;   // of each layer, where costs are known
  std::vector<ExchangeUse> uses;  // who carried the measured steps, the same
};

// Runs the whole bench on this rank; collective. `bill` holds the machine and configuration; `costs` count on rank 0.
// Rank 0 returns the finished bill and everyone's ledgers, the others nothing. An error has been told to the other
// ranks already.
Result<std::optional<BenchOutcome>> run_bench_rank(const BenchOptions& options, const RoutingSource& routes,
                                                   const std::optional<MachineCosts>& costs, Bill bill,
                                                   Communicator& world);

}  // namespace moetax::cli
