// Which exchange the next calls should use: by predictions, corrected by what was measured while running.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "moetax/cost/exchange_cost.h"

namespace moetax {

struct ExchangePolicyOptions {
  double hysteresis = 0.10;  // another exchange must promise to be so much faster,
  int reviews = 2;           // in so many reviews running
  // Limits that end the patience when they are first crossed: the best is taken at once if it is 2 % better. While they
  // stay crossed patience is back, because nobody gains from a change at every review.
  std::optional<double> latency_us = {};  // of a dispatch and its combine
  std::optional<double> tax_share = {};   // of a step
};

// What was seen since the last review.
struct ExchangeSeen {
  std::optional<double> us;  // a dispatch and its combine, from when all ranks had come to each until all were done
  std::optional<double> tax_share;
};

struct ExchangeDecision {
  ExchangeAlgorithm from = ExchangeAlgorithm::kFlat, to = ExchangeAlgorithm::kFlat;  // the same: nothing is better
  std::string why;                                                                   // one line, for a log
};

// Predictions miss what changes: a link that slowed down, a rank that others share. The ratio of measured to predicted
// time is kept for each exchange that ran; one that did not run is expected to miss by its geometric half, because
// what ails a link ails all that cross it, but not all as much. So a slow exchange is left for the next best, and come
// back to if that is no better. What is known of those that do not run ages: a sudden change of the one that runs is
// news of them too (to the better wholly, to the worse by its geometric half), and at every review they are drawn a
// little towards it. So an exchange that recovered is tried again.
class ExchangePolicy {
 public:
  // `machine` must have what cannot_predict() asks for.
  ExchangePolicy(MachineCosts machine, const ExchangePolicyOptions& options)
      : machine_(std::move(machine)), options_(options) {}

  // A decision where something is to be said: another exchange, or a limit that none is expected to keep (once until
  // it is kept again). The first review decides by predictions
  // alone: first steps are slow for reasons of their own.
  std::optional<ExchangeDecision> review(const Traffic& traffic, double row_bytes, ExchangeAlgorithm current,
                                         const ExchangeSeen& seen);

 private:
  double expected_us(const RankedAlgorithm& algorithm) const;
  void learn(double measured_us, double predicted_us, ExchangeAlgorithm algorithm);
  std::optional<std::string> crossed_limit(const ExchangeSeen& seen) const;

  MachineCosts machine_;
  ExchangePolicyOptions options_;
  std::array<std::optional<double>, kNumExchangeAlgorithms> correction_;  // measured over predicted
  bool first_ = true;
  int votes_ = 0;  // reviews running in which another was better
  // Of limits: kept; crossed, and another exchange was taken for it; crossed, and it was said that none is better.
  enum class Limit : std::uint8_t { kKept, kActed, kTold };
  Limit limit_ = Limit::kKept;
};

}  // namespace moetax
