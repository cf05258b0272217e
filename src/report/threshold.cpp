#include "moetax/report/threshold.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <optional>
#include <string_view>

#include "moetax/base/text.h"
#include "report/format.h"

namespace moetax {
namespace {

constexpr std::array<std::string_view, 6> kMetrics{"tax", "pack", "wire", "wait", "launch", "step_us"};
constexpr std::array<std::string_view, 4> kComparisons{">", ">=", "<", "<="};
constexpr std::array<std::string_view, 4> kCrossed{"over", "at or over", "under", "at or under"};

Unexpected bad(std::string_view text, std::string_view why) {
  return fail(ErrorCode::kUsage, fmt::format("limit {}: {}; expected METRIC OP VALUE, for example tax>25% or "
                                             "step_us>20000",
                                             in_quotes(text), why));
}

template <std::size_t N>
std::optional<std::size_t> find(const std::array<std::string_view, N>& names, std::string_view name) {
  for (std::size_t i = 0; i < N; ++i) {
    if (names[i] == name) return i;
  }
  return std::nullopt;
}

std::string to_text(const Threshold& threshold) {
  return fmt::format("{}{}{}{}", kMetrics[static_cast<std::size_t>(threshold.metric)],
                     kComparisons[static_cast<std::size_t>(threshold.comparison)], threshold.value,
                     threshold.metric == Metric::kStepUs ? "" : "%");
}

// In the unit of the limit: percent of the step, or microseconds.
std::optional<double> measured(const Bill& bill, Metric metric) {
  const auto percent = [&bill](const std::optional<double>& us) -> std::optional<double> {
    if (!us) return std::nullopt;
    return 100 * *us / bill.step_us.mean;
  };
  switch (metric) {
    case Metric::kTax:
      return 100 * bill.tax.share;
    case Metric::kPack:
      return percent(bill.tax.pack_us);
    case Metric::kWire:
      return percent(bill.tax.wire_us);
    case Metric::kWait:
      return percent(bill.tax.wait_us);
    case Metric::kLaunch:
      return percent(bill.tax.launch_us);
    case Metric::kStepUs:
      break;
  }
  return bill.step_us.mean;
}

bool holds(double value, Comparison comparison, double limit) {
  switch (comparison) {
    case Comparison::kGreater:
      return value > limit;
    case Comparison::kGreaterEqual:
      return value >= limit;
    case Comparison::kLess:
      return value < limit;
    case Comparison::kLessEqual:
      break;
  }
  return value <= limit;
}

}  // namespace

Result<Threshold> parse_threshold(std::string_view text) {
  const std::size_t at = text.find_first_of("<>");
  if (at == std::string_view::npos) return bad(text, "no < or > in it");
  const std::size_t op_size = at + 1 < text.size() && text[at + 1] == '=' ? 2 : 1;
  const std::string_view name = trim(text.substr(0, at));
  std::string_view value = trim(text.substr(at + op_size));

  const auto metric = find(kMetrics, name);
  if (!metric) return bad(text, fmt::format("no metric {} (there are {})", in_quotes(name), fmt::join(kMetrics, ", ")));
  Threshold threshold;
  threshold.metric = static_cast<Metric>(*metric);
  threshold.comparison = static_cast<Comparison>(*find(kComparisons, text.substr(at, op_size)));
  const bool percent = !value.empty() && value.back() == '%';
  if (percent) value = trim(value.substr(0, value.size() - 1));
  if (percent && threshold.metric == Metric::kStepUs) return bad(text, "step_us is in microseconds, not %");
  if (!percent && threshold.metric != Metric::kStepUs)
    return bad(text, fmt::format("{} is a share: end it with %", name));
  const auto number = parse_number<double>(value);
  if (!number || !std::isfinite(*number) || *number < 0) {
    return bad(text, in_quotes(value) + " is not a number from 0 up");
  }
  threshold.value = *number;
  return threshold;
}

Result<ThresholdOutcome> check_threshold(const Bill& bill, const Threshold& threshold) {
  const std::string limit = to_text(threshold);
  if (bill.step_us.count == 0 || bill.step_us.mean <= 0) {
    return fail(ErrorCode::kUnavailable, fmt::format("limit {} cannot be checked: no step was measured", limit));
  }
  const auto value = measured(bill, threshold.metric);
  if (!value)
    return fail(ErrorCode::kUnavailable, fmt::format("limit {} cannot be checked: it is unknown here", limit));
  ThresholdOutcome outcome;
  outcome.crossed = holds(*value, threshold.comparison, threshold.value);
  outcome.text =
      fmt::format("{} is {}, {} the limit {}", kMetrics[static_cast<std::size_t>(threshold.metric)],
                  threshold.metric == Metric::kStepUs ? report::time_text(*value) : report::percent_text(*value / 100),
                  outcome.crossed ? kCrossed[static_cast<std::size_t>(threshold.comparison)] : "within", limit);
  return outcome;
}

}  // namespace moetax
