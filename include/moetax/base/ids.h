// The numbers that name things. Plain integers: they index arrays everywhere and travel in messages.
#pragma once

#include <cstdint>

namespace moetax {

using Rank = int;      // 0 .. R-1, one expert-parallel process or thread
using Node = int;      // 0 .. nodes-1, ranks that share memory
using ExpertId = int;  // 0 .. E-1, global over all ranks

inline constexpr Rank kNoRank = -1;

}  // namespace moetax
