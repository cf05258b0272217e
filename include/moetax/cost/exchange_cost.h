// How long a call of an exchange takes, from its traffic and what links cost: start-up + bytes / bandwidth + hops +
// copies + synchronisation, each told apart.
//
// Sources. Lines over message sizes: Hockney, Parallel Computing 20 (1994). Start-up of pairwise forms grows with the
// peers, N - 1, that of trees with log2 N: Thakur, Rabenseifner, Gropp, Int. J. High Perf. Comp. Appl. 19 (2005). Hops:
// a ring of n nodes passes bundles on up to floor(n / 2) times, a two-dimensional mesh twice. moetax's flags go
// straight from each rank to each, so synchronisation is a pairwise form too.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "moetax/base/exchange_algorithm.h"
#include "moetax/cost/machine_costs.h"
#include "moetax/cost/traffic.h"

namespace moetax {

// In us, of the rank or node that takes longest in each term.
struct CallCost {
  double start_up_us = 0;   // first messages to all peers
  double bandwidth_us = 0;  // bytes of the fullest link, crossing once
  double hops_us = 0;       // what passing bundles on adds: start-ups and bytes of all further hops
  double copy_us = 0;       // rows placed, copied on and summed in memory, beside what the links' own times hold
  double sync_us = 0;       // agreeing: counts, plans, flags, meetings

  double total_us() const { return start_up_us + bandwidth_us + hops_us + copy_us + sync_us; }
};

// What `machine` has to have measured for this traffic; otherwise why a call cannot be predicted, in one line.
std::optional<std::string> cannot_predict(const MachineCosts& machine, const RankPlaces& places);

// Needs what cannot_predict() asks for.
CallCost predict_call(const MachineCosts& machine, const Traffic& traffic, ExchangeCall call,
                      ExchangeAlgorithm algorithm, double row_bytes);

// The algorithms by the predicted time of a dispatch and its combine, best first. Where groups do not cross between
// nodes they are all the same and flat is the only one.
struct RankedAlgorithm {
  ExchangeAlgorithm algorithm = ExchangeAlgorithm::kFlat;
  double predicted_us = 0;
};
std::vector<RankedAlgorithm> rank_algorithms(const MachineCosts& machine, const Traffic& traffic, double row_bytes);

// The fastest a rank's link carries, in bytes per us: of the node's link its share where rows cross, else its memory.
// 0: unknown.
double link_roof(const MachineCosts& machine, bool crosses);

}  // namespace moetax
