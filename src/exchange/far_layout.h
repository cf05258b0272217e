// Which rows of a dispatch cross between nodes; see far.h.
#pragma once

#include <cstdint>
#include <vector>

#include "moetax/base/ids.h"

namespace moetax {

// Where a row that crossed is needed.
struct FarSlot {
  std::int32_t row;      // of `rank`'s batch
  std::int16_t rank;     // the stop or, two-level, one of its node mates
  std::int16_t new_row;  // 1 in the first slot of each row
};

// The rows of one direction, grouped by peer: the stop of outgoing rows, the source of incoming ones.
struct FarList {
  std::vector<std::int64_t> first_row, first_slot;  // [R + 1] by peer
  std::vector<FarSlot> slot;
  std::vector<std::int64_t> slot_of;  // [rows + 1] the first slot of each row
  std::vector<float> weight;          // of each slot; kept by two-level and while d_out travels
  std::int64_t rows_of(Rank peer) const;
  std::int64_t slots_of(Rank peer) const;
};

struct FarLayout {
  FarList out, in;
  std::vector<std::int64_t> token;        // of each outgoing row
  std::vector<std::int64_t> choice;       // of each outgoing slot: t * K + k
  std::vector<std::int32_t> rows, slots;  // [R, R] from source to stop, of all ranks
  std::int64_t destinations = 0;          // pairs of a token and a rank of another node that it goes to
};

}  // namespace moetax
