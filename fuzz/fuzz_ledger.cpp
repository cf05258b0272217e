// Bytes taken as a rank's ledger make a ledger that a bill can be made of, or an error of one line.

#include <algorithm>
#include <cmath>
#include <span>

#include "fuzz.h"
#include "moetax/meter/ledger.h"
#include "moetax/report/bill.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using moetax::fuzz::require;
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto ledger = moetax::RankLedger::from_bytes(bytes);
  if (!ledger) {
    require(ledger.error().code == moetax::ErrorCode::kBadInput);
    moetax::fuzz::require_good_message(ledger.error(), "a rank's ledger of ");
    return 0;
  }
  // What was read is what to_bytes() writes, bit for bit.
  const auto again = ledger->to_bytes();
  require(std::equal(again.begin(), again.end(), bytes.begin(), bytes.end()));

  moetax::Bill bill;
  bill.config.experts = ledger->expert_tokens.empty() ? 0 : static_cast<int>(ledger->expert_tokens.front().size());
  bill.config.experts_per_rank = {bill.config.experts};
  moetax::fill_bill({*ledger}, bill);
  moetax::explain(bill);
  require(std::isfinite(bill.step_us.mean) && std::isfinite(bill.tax.share) && bill.tax.share >= 0);
  require(!moetax::to_json(bill).empty());
  require(!moetax::to_text(bill).empty());
  require(!moetax::to_chrome_trace({*ledger}).empty());
  return 0;
}
