// Prints bills as a JSON array, for check_schema.py to hold against the schema file.
#include <cstdio>

#include "report/sample_ledgers.h"
#include "report/sample_traces.h"

int main() {
  using namespace moetax;  // NOLINT(google-build-using-namespace)
  Bill unknown = sample::planted_bill();
  unknown.tax.wait_us.reset();
  unknown.tax.wire_us.reset();
  unknown.ranks[0].wait_us.reset();
  unknown.ranks[0].waited_for[0].rank = kNoRank;
  unknown.config.ep_size.reset();
  unknown.config.deadline_s.reset();
  Bill priced = sample::planted_bill();
  priced.config.costs = "machine.json";
  priced.exchanges[0].roof_gbs = priced.exchanges[0].roof_share = priced.exchanges[0].predicted_us = 1.5;
  priced.exchanges[0].prediction_error = -0.25;
  priced.choices = {{1, "two-level", "it is predicted to be faster"}};
  priced.decomposition = {{"flat", "dispatch", {1, 2, 3, 4, 5}, 16}};
  priced.stress.resize(2);
  priced.stress[0].concurrency = 4;
  priced.stress[1].rate = 0.5;
  priced.stress[1].replicas = true;
  const char* separator = "[";
  for (const Bill& bill : {sample::planted_bill(), sample::hot_bill(), sample::wide_bill(), sample::wire_bill(),
                           sample::one_rank_bill(), sample::no_steps_bill(), sample::bill_of({}), unknown, priced,
                           sample::trace_bill(1), sample::trace_bill(2), sample::trace_bill(0)}) {
    std::printf("%s%s", separator, to_json(bill).c_str());
    separator = ",";
  }
  std::printf("]\n");
  return 0;
}
