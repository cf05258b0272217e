// Two bills side by side: what changed between them, what did not, and whether it is more than noise.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "moetax/base/ids.h"
#include "moetax/base/result.h"

namespace moetax {

// What a comparison takes from a bill, of a run or of traces; times in us. What a bill does not know is absent.
struct ComparedBill {
  struct PerRank {
    Rank rank = kNoRank;
    double step_us = 0, compute_us = 0, exposed_us = 0;
    std::optional<double> wait_us;
    double waited_for_us = 0;  // by all others
  };
  struct Exchange {
    std::string name;  // with its phase, and its family in traces
    double calls = 0, us = 0;
    std::optional<double> wait_us, transfer_us;  // per call, mean over ranks
  };
  std::string name;                                                  // of the file or folder
  bool traced = false;                                               // made from traces
  std::vector<std::pair<std::string, std::string>> machine, config;  // what should agree
  double step_us = 0, step_std_us = 0, steps = 0;                    // the window, in traces
  double compute_us = 0, other_us = 0, exposed_us = 0, hidden_us = 0;
  std::optional<double> pack_us, wire_us, wait_us, launch_us;
  std::vector<PerRank> ranks;
  std::vector<Exchange> exchanges;
  std::string output_hash;
};

// From moetax.bill/1, as bench and analyze write it. kBadInput naming `name`, the key and what was expected.
Result<ComparedBill> parse_compared(std::string_view json, const std::string& name);

struct Comparison {
  struct Row {
    std::string name;
    std::optional<double> before_us, after_us;
  };
  ComparedBill before, after;
  std::vector<std::string> warnings;   // why the two may not be comparable, a sentence each
  std::vector<std::string> sentences;  // what changed and what did not, the most important first
  std::vector<Row> rows;               // a step by parts, mean over ranks
  bool noise = false;                  // the step's change is within what steps differ by
};
Comparison compare(ComparedBill before, ComparedBill after);

std::string to_text(const Comparison& comparison);
// moetax.comparison/1, see schema/comparison.schema.json.
std::string to_json(const Comparison& comparison);

}  // namespace moetax
