// Prints bills as a JSON array, for check_schema.py to hold against the schema file.
#include <cstdio>

#include "report/sample_ledgers.h"

int main() {
  using namespace moetax;  // NOLINT(google-build-using-namespace)
  Bill unknown = sample::planted_bill();
  unknown.tax.wait_us.reset();
  unknown.tax.wire_us.reset();
  unknown.ranks[0].wait_us.reset();
  unknown.ranks[0].waited_for[0].rank = kNoRank;
  unknown.config.ep_size.reset();
  unknown.config.deadline_s.reset();
  const char* separator = "[";
  for (const Bill& bill : {sample::planted_bill(), sample::hot_bill(), sample::wide_bill(), sample::wire_bill(),
                           sample::one_rank_bill(), sample::no_steps_bill(), sample::bill_of({}), unknown}) {
    std::printf("%s%s", separator, to_json(bill).c_str());
    separator = ",";
  }
  std::printf("]\n");
  return 0;
}
