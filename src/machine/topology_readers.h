// The readers behind parse_topologies, one per format. Each returns the machines of its format in `text`, none when
// there are none.
#pragma once

#include <string_view>
#include <vector>

#include "moetax/machine/topology.h"

namespace moetax {

std::vector<Topology> parse_nvidia_smi(std::string_view text);
bool looks_like_nvidia_smi(std::string_view text);

}  // namespace moetax
