// How error messages speak of ranks.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "moetax/base/ids.h"
#include "moetax/base/result.h"

namespace moetax {

// "rank 3", "ranks 0-2", "ranks 0-2, 5". `ranks` ascending, not empty.
std::string format_ranks(std::span<const Rank> ranks);

// "ranks disagree on the layer: ranks 0, 2 have H=2048, rank 1 has H=4096". texts[i] is what ranks[i] has. Error::rank
// is the first that differs from ranks[0].
Error disagreement(std::string_view what, std::span<const Rank> ranks, std::span<const std::string> texts);

}  // namespace moetax
