// A machine drawn in text: which GPUs and adapters are near each other, the links between the GPUs, which
// expert-parallel groups stay on fast ones, and the environment lines that follow.
#pragma once

#include <string>

#include "moetax/machine/topology.h"

namespace moetax {

// At most 100 columns of ASCII; ends with a line break.
std::string to_text(const Topology& topology);

}  // namespace moetax
