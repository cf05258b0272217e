// Limits that a run may not cross: `--fail-on tax>25%`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "moetax/base/result.h"
#include "moetax/report/bill.h"

namespace moetax {

enum class Metric : std::uint8_t { kTax, kPack, kWire, kWait, kLaunch, kStepUs };
enum class Comparison : std::uint8_t { kGreater, kGreaterEqual, kLess, kLessEqual };

// METRIC OP VALUE. tax, pack, wire, wait and launch are shares of the step in percent ("wait>=10%"); step_us is the
// mean step in microseconds ("step_us>20000"). The limit is crossed when the comparison holds.
struct Threshold {
  Metric metric = Metric::kTax;
  Comparison comparison = Comparison::kGreater;
  double value = 0;
};

// kUsage in one line with what was expected and an example.
Result<Threshold> parse_threshold(std::string_view text);

struct ThresholdOutcome {
  bool crossed = false;
  std::string text;  // "tax is 31.2 %, over the limit tax>25%", "step_us is 812 us, under the limit step_us<900"
};

// kUnavailable when the bill has no measured step or does not know the metric.
Result<ThresholdOutcome> check_threshold(const Bill& bill, const Threshold& threshold);

}  // namespace moetax
