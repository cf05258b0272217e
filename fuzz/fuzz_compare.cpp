// A bill from anywhere can be compared with itself, or is an error of one line.

#include "fuzz.h"
#include "moetax/report/compare.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using moetax::fuzz::require;
  auto bill = moetax::parse_compared(moetax::fuzz::as_text(data, size), "bill");
  if (!bill) {
    require(bill.error().code == moetax::ErrorCode::kBadInput);
    moetax::fuzz::require_good_message(bill.error(), "bill: ");
    return 0;
  }
  const moetax::Comparison same = moetax::compare(*bill, *bill);
  require(same.warnings.empty() && same.noise);
  for (const std::string& text : {to_text(same), to_json(same)}) {
    require(text.find("nan") == std::string::npos && text.find("inf ") == std::string::npos);
  }
  return 0;
}
