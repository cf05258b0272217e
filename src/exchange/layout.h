// Where rows go: counting the router's choices, and turning all ranks' counts into row numbers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "exchange/far_layout.h"
#include "moetax/base/memory.h"
#include "moetax/exchange/exchange.h"

namespace moetax {

// The row of one (token, k) at the rank that owns the expert.
struct Place {
  std::int32_t row;
  std::int16_t rank;
  bool first;  // the first of its token at that rank: the one that travels, the others there are copies of it
};

// A further slot of a token that arrived in row `from`, on the receiver's side.
struct RowCopy {
  std::int32_t from;
  std::int32_t to;
};

// A list of row copies in the receiver's memory, written by one sender.
struct CopyList {
  std::int64_t* size;
  RowCopy* copy;
};

struct DispatchLayout::State {
  const void* owner = nullptr;  // the exchange it belongs to
  std::uint64_t number = 0;     // of the dispatch that made it
  std::int64_t tokens = 0;
  std::int64_t rows = 0;            // N
  std::int64_t peer_rows = 0;       // of this rank's T * K, those on other ranks
  std::vector<std::int32_t> count;  // [local experts]
  PageBuffer place_memory, copy_memory;
  Place* place = nullptr;   // [T, K]
  RowCopy* copy = nullptr;  // [num_copies], grouped by `from`
  std::int64_t num_copies = 0;
  FarLayout far;  // what crosses between nodes; empty on one node
};

// Rows of an expert are in global token order: sorted by (source rank, token). So the row of a choice is the rows of
// the earlier experts of that rank, plus the rows of the expert that earlier ranks send, plus those of earlier tokens
// here.
class LayoutBuilder {
 public:
  LayoutBuilder(const ExpertPlacement& placement, Rank self);

  // count[e] := how often this rank's tokens chose e. kBadInput for ids that are out of range or repeat within a token.
  Result<void> count_choices(const RoutingTable& routing, std::span<std::int32_t> count);

  // counts[r] points to rank r's count [E]. Fills `layout` but for the copies of other ranks' rows, and writes the
  // copies that each other rank must make of this rank's rows to lists[rank] (no lists, or null: not wanted).
  void build(const RoutingTable& routing, std::span<const std::int32_t* const> counts, std::span<const CopyList> lists,
             DispatchLayout::State& layout);

  // After build, the rows here of other ranks' choices, taken in the order of (rank, token): rewind, then for each rank
  // either take its tokens' rows one by one or skip all that it counted.
  void rewind_rows();
  void skip_rows(const std::int32_t* count);
  std::size_t next_rows(std::span<const std::int32_t> choice, std::span<std::int32_t> rows);

 private:
  void find_first_rows(std::span<const std::int32_t* const> counts, DispatchLayout::State& layout);
  void place_rows(const RoutingTable& routing, std::span<const CopyList> lists, DispatchLayout::State& layout);

  // While placing: the last token that had a row at a rank, its first row there, and the copies listed for the rank.
  struct Target {
    std::int64_t token = -1;
    std::int32_t first_row = 0;
    std::int64_t num_copies = 0;
  };
  Rank self_;
  std::vector<std::int16_t> owner_;       // [E]
  std::vector<int> first_expert_;         // [R + 1]
  std::vector<std::int64_t> last_token_;  // [E] that chose the expert, while counting
  std::vector<std::int32_t> total_;       // [E] rows of the expert, all ranks
  std::vector<std::int32_t> next_row_;    // [E] at the owner, for this rank's next token
  std::vector<std::int32_t> incoming_;    // [local experts] the next row to be taken
  std::vector<Target> target_;            // [R]
};

}  // namespace moetax
