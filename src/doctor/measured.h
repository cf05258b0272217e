// The speed of links as moetax calibrate measured it.
#pragma once

#include <string>
#include <string_view>

#include "moetax/base/result.h"

namespace moetax::doctor {

// Of moetax calibrate's machine.json.
struct MeasuredFacts {
  std::string file;
  int nodes = 0;
  double gbs = 0;  // of one rank: to other nodes, or to other ranks of the one node; 0: not measured
};

Result<MeasuredFacts> read_measured(std::string_view text, const std::string& file);

}  // namespace moetax::doctor
