#include "moetax/cost/exchange_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace moetax {
namespace {

constexpr double kNewest = 0.5;      // the weight of the newest measurement among those before
constexpr double kForgotten = 0.02;  // in a review, of what is known of exchanges that do not run
constexpr double kNews = 1.25;       // what a correction changes by at once where something happened
constexpr double kAtOnce = 0.02;     // what another must promise when a limit is crossed

std::string ms_text(double us) {
  return fmt::format("{:.3g} ms", us * 1e-3);
}

std::size_t idx(ExchangeAlgorithm algorithm) {
  return static_cast<std::size_t>(algorithm);
}

const RankedAlgorithm& find(const std::vector<RankedAlgorithm>& ranked, ExchangeAlgorithm algorithm) {
  const auto is_it = [&](const RankedAlgorithm& one) { return one.algorithm == algorithm; };
  return *std::find_if(ranked.begin(), ranked.end(), is_it);
}

}  // namespace

double ExchangePolicy::expected_us(const RankedAlgorithm& algorithm) const {
  if (const auto& known = correction_[idx(algorithm.algorithm)]) return *known * algorithm.predicted_us;
  double logs = 0;
  int count = 0;
  for (const auto& correction : correction_) {
    if (!correction) continue;
    logs += std::log(*correction);
    ++count;
  }
  return (count > 0 ? std::exp(logs / count / 2) : 1) * algorithm.predicted_us;
}

void ExchangePolicy::learn(double measured_us, double predicted_us, ExchangeAlgorithm algorithm) {
  if (!(measured_us > 0 && predicted_us > 0)) return;
  std::optional<double>& correction = correction_[idx(algorithm)];
  const double ratio = measured_us / predicted_us;
  const double before = correction.value_or(ratio);
  correction = before + kNewest * (ratio - before);
  const double change = *correction / before;
  const double news = change > kNews ? std::sqrt(change) : change < 1 / kNews ? change : 1;
  for (std::optional<double>& other : correction_) {
    if (!other || &other == &correction) continue;
    *other *= news * std::pow(*correction / *other, kForgotten);
  }
}

std::optional<std::string> ExchangePolicy::crossed_limit(const ExchangeSeen& seen) const {
  if (options_.latency_us && seen.us && *seen.us > *options_.latency_us) {
    return fmt::format("an exchange took {}, beyond the limit of {}", ms_text(*seen.us), ms_text(*options_.latency_us));
  }
  if (options_.tax_share && seen.tax_share && *seen.tax_share > *options_.tax_share) {
    return fmt::format("the tax was {:.1f} % of a step, beyond the limit of {:.1f} %", 100 * *seen.tax_share,
                       100 * *options_.tax_share);
  }
  return std::nullopt;
}

std::optional<ExchangeDecision> ExchangePolicy::review(const Traffic& traffic, double row_bytes,
                                                       ExchangeAlgorithm current, const ExchangeSeen& seen) {
  const std::vector<RankedAlgorithm> ranked = rank_algorithms(machine_, traffic, row_bytes);
  if (ranked.size() == 1) return std::nullopt;  // nothing crosses
  const RankedAlgorithm& running = find(ranked, current);
  const bool first = std::exchange(first_, false);
  if (seen.us && !first) learn(*seen.us, running.predicted_us, current);
  const auto faster = [&](const RankedAlgorithm& a, const RankedAlgorithm& b) {
    return expected_us(a) < expected_us(b);
  };
  const RankedAlgorithm& best = *std::min_element(ranked.begin(), ranked.end(), faster);
  const double now_us = expected_us(running), best_us = expected_us(best);
  const bool other = best.algorithm != current && best_us < now_us;
  if (first) {
    if (!other) return std::nullopt;
    return ExchangeDecision{current, best.algorithm,
                            fmt::format("{} is predicted to take {}, {} {}", to_string(best.algorithm),
                                        ms_text(best_us), to_string(current), ms_text(now_us))};
  }
  const std::optional<std::string> crossed = crossed_limit(seen);
  if (!crossed) limit_ = Limit::kKept;
  const bool at_once = crossed && limit_ == Limit::kKept;
  votes_ = other && best_us * (1 + (at_once ? kAtOnce : options_.hysteresis)) < now_us ? votes_ + 1 : 0;
  if (votes_ >= (at_once ? 1 : options_.reviews)) {
    votes_ = 0;
    if (crossed) limit_ = Limit::kActed;
    std::string why = fmt::format("{} took {} where {} was predicted, {} is expected to take {}", to_string(current),
                                  ms_text(seen.us.value_or(now_us)), ms_text(running.predicted_us),
                                  to_string(best.algorithm), ms_text(best_us));
    return ExchangeDecision{current, best.algorithm, crossed ? *crossed + ": " + why : why};
  }
  if (!crossed || votes_ > 0 || std::exchange(limit_, Limit::kTold) == Limit::kTold) return std::nullopt;
  return ExchangeDecision{current, current, *crossed + ": no exchange is expected to be faster"};
}

}  // namespace moetax
