// What a finding costs, from the facts, by the formulas of the cost room.
#pragma once

#include <optional>
#include <string>

#include "doctor/facts.h"

namespace moetax::doctor {

inline constexpr double kBf16Bytes = 2;

// What the exchange of one MoE layer puts on the links between `groups` equal groups of ranks, for one token: dispatch
// and combine, rows that stay in the token's own group left out.
struct TokenTraffic {
  double rows = 0;   // each way: of (token, expert) pairs, or of distinct groups where rows are sent once a group
  double bytes = 0;  // dispatch and combine together, bf16
  bool once_a_group = false;
};
// Needs the model's experts, top-k and width.
std::optional<TokenTraffic> token_traffic(const Facts& facts, int groups);

struct StepTraffic {
  TokenTraffic token;
  double tokens = 0;  // of one rank and micro-batch
  double layers = 0;  // with experts, of one rank
  double bytes = 0;   // of one rank and micro-batch, forward and, in training, backward
};
// Needs the batch and the length of sequences too.
std::optional<StepTraffic> step_traffic(const Facts& facts, int groups);

// Of the bytes that an exchange between `nodes` nodes moves: a number with its derivation, and the time where a link's
// speed is known; else what is missing.
Cost price_between_nodes(const Facts& facts, int nodes);

Cost cannot_price(std::string missing);

}  // namespace moetax::doctor
