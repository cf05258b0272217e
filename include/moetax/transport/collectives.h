// Collectives for set-up, gradients and results, built on windows and flags. Every rank calls them in the same order.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "moetax/base/observer.h"
#include "moetax/transport/communicator.h"

namespace moetax {

// Owns the scratch window its collectives go through. Created collectively; keeps a reference to the communicator,
// which must outlive it. Allocation-free but for gather_bytes. Several may exist for one communicator.
class Collectives {
 public:
  static Result<Collectives> create(Communicator& comm, Deadline deadline);

  Result<void> barrier(const char* name, Deadline deadline);

  // Every rank's `mine` (same size on all ranks, at most 4 KiB), in rank order: all[r * mine.size() ...].
  Result<void> all_gather(const char* name, std::span<const std::byte> mine, std::span<std::byte> all,
                          Deadline deadline);

  // Each rank passes its description (less than 4 KiB) of something that must agree; on a difference every rank gets
  // kPeerFailed with all values and who has them: "ranks disagree on the layer: ranks 0, 2 have H=2048, rank 1 has
  // H=4096". Error::rank is the first that differs from rank 0.
  Result<void> agree(const char* what, std::string_view mine, Deadline deadline);

  // values := sum over ranks, in rank order (bit-identical on all ranks), fp32, in chunks through shared memory: each
  // rank sums its share of the chunk, then all copy the sums. The deadline's
  // length holds for each wait, not for all. The same count on all ranks. Reports to `observer` (may
  // be null) its parts of the time, its waits, and one ExchangeRecord (`name`, family "all-reduce") whose bytes
  // are those this rank read: logical from all ranks' memory, physical from other ranks', internode from other nodes'.
  // A single rank reads nothing.
  Result<void> all_reduce_sum(const char* name, std::span<float> values, Deadline deadline, Observer* observer);

  // Rank 0 receives every rank's bytes (sizes may differ), the others an empty vector.
  Result<std::vector<std::vector<std::byte>>> gather_bytes(std::span<const std::byte> mine, Deadline deadline);

 private:
  Collectives(Communicator& comm, Window scratch) : comm_(&comm), scratch_(std::move(scratch)) {}
  Communicator* comm_;
  Window scratch_;
  std::uint64_t number_ = 0;  // uses of the scratch window and barriers
  std::uint64_t reductions_ = 0;
};

}  // namespace moetax
