// The scratch window of Collectives: two slots for small data, then two chunks of values to sum. Slots and chunks are
// used in turn. A rank that fills one for the second time has seen everybody post the collective in between, and they
// posted it after they had read the first filling.
#pragma once

#include <cstddef>
#include <cstdint>

#include "moetax/transport/communicator.h"

namespace moetax {

inline constexpr std::size_t kSlotBytes = 4096;
inline constexpr std::size_t kChunkFloats = std::size_t{128} << 10;  // the chunks of a few ranks stay in the caches
inline constexpr std::size_t kScratchBytes = 2 * kSlotBytes + 2 * kChunkFloats * sizeof(float);

inline std::byte* slot(const Window& scratch, Rank rank, std::uint64_t turn) {
  return scratch.at(rank) + (turn % 2) * kSlotBytes;
}

inline float* chunk(const Window& scratch, Rank rank, std::uint64_t turn) {
  return reinterpret_cast<float*>(scratch.at(rank) + 2 * kSlotBytes) + (turn % 2) * kChunkFloats;
}

}  // namespace moetax
