// What files hold that are no traces, in a few lines: sums and measurements without a time line, of which no bill can
// be made.
#pragma once

#include <string>
#include <string_view>

#include "moetax/analyze/kernel_rules.h"
#include "moetax/base/result.h"

namespace moetax {

struct TableText {
  std::string kind;  // "nccl-tests table", ...
  std::string text;  // a sentence first, then what can be had of a bill; lines end with a line break
};

// Flight recorders, NCCL's inspector, nccl-tests, kernel tables of Nsight Systems, nvbandwidth, expert loads and
// routes. kBadInput in one line that starts with `origin`: none of these, or damaged beyond use.
Result<TableText> describe_table(std::string_view bytes, const std::string& origin, const KernelRules& rules);

}  // namespace moetax
