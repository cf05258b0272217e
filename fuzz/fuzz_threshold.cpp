// A limit from anywhere can be checked against a bill, or is an error of one line.

#include <cmath>

#include "fuzz.h"
#include "moetax/report/threshold.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using moetax::fuzz::require;
  const auto threshold = moetax::parse_threshold(moetax::fuzz::as_text(data, size));
  if (!threshold) {
    require(threshold.error().code == moetax::ErrorCode::kUsage);
    moetax::fuzz::require_good_message(threshold.error(), "limit '");
    return 0;
  }
  require(std::isfinite(threshold->value) && threshold->value >= 0);
  moetax::Bill bill;
  bill.step_us.count = 1;
  bill.step_us.mean = bill.tax.us = 100;
  bill.tax.share = 1;
  const auto outcome = moetax::check_threshold(bill, *threshold);
  require(outcome.has_value() || outcome.error().code == moetax::ErrorCode::kUnavailable);
  if (outcome) require(outcome->text.find(" the limit ") != std::string::npos);
  return 0;
}
