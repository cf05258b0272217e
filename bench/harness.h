// Interleaved measurements: competitors take turns inside one run, so that a slow moment of the machine hits all of
// them.
#pragma once

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "moetax/base/clock.h"
#include "moetax/base/function_ref.h"

namespace moetax::bench {

struct Contender {
  std::string name;
  FunctionRef<void()> run;
};

struct Timing {
  double median_us = 0, p10_us = 0, p90_us = 0;
};

// Runs every contender once to warm up, then `rounds` rounds in which each runs once, in turn. Medians and spread.
inline std::vector<Timing> interleave(std::vector<Contender> contenders, int rounds = 15) {
  std::vector<std::vector<double>> us(contenders.size());
  for (auto& contender : contenders) contender.run();
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < contenders.size(); ++i) {
      const std::int64_t start = now_ns();
      contenders[i].run();
      us[i].push_back(static_cast<double>(now_ns() - start) * 1e-3);
    }
  }
  std::vector<Timing> timings;
  for (auto& samples : us) {
    std::sort(samples.begin(), samples.end());
    const std::size_t last = samples.size() - 1;
    timings.push_back({samples[samples.size() / 2], samples[last / 10], samples[last - last / 10]});
  }
  return timings;
}

// One line a row: "router E=64 K=6: 0.12 ms [0.11..0.13] against two-pass 1.3 ms: 10.8x (reach 6x)".
inline void print_row(const std::string& what, const Timing& ours, const std::string& against, const Timing& theirs,
                      double ratio, const std::string& reach) {
  std::printf("%s: %.1f us [%.1f..%.1f] against %s %.1f us [%.1f..%.1f]: %.2f (%s)\n", what.c_str(), ours.median_us,
              ours.p10_us, ours.p90_us, against.c_str(), theirs.median_us, theirs.p10_us, theirs.p90_us, ratio,
              reach.c_str());
  std::fflush(stdout);
}

}  // namespace moetax::bench
