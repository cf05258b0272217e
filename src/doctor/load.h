// How even a load is over the ranks of an expert-parallel group.
#pragma once

#include <optional>

#include "doctor/facts.h"

namespace moetax::doctor {

// Experts in equal blocks over the ranks. All "max" are over the mean.
struct RankBalance {
  double median = 1;  // over layers, of the busiest rank
  double worst = 1;   // the layer where it is most
  int worst_layer = 0, worst_rank = 0;
  double worst_rows = 0;    // of that rank
  double layer_rows = 0;    // of that layer
  double worst_expert = 1;  // over layers, of the busiest expert
};

// Nothing when `ranks` is below two or does not divide the experts, or the load does not list them all.
std::optional<RankBalance> rank_balance(const LoadFacts& load, int ranks);

}  // namespace moetax::doctor
