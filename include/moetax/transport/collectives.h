// Collectives for set-up, gradients and results, built on flags, windows inside a node and messages between nodes.
// Every rank calls them in the same order; ranks that make different calls all get kPeerFailed with who called what.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "moetax/base/observer.h"
#include "moetax/transport/communicator.h"
#include "moetax/transport/node_map.h"

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

  // values := sum over ranks, fp32, the same bits on all ranks, in chunks. Inside a node each rank sums its share of
  // the chunk through shared memory, in rank order. Between nodes the ranks with the same place in their node sum these
  // sums, each a piece of its share, in the order of the nodes; then all copy. The deadline's length holds for each
  // wait, not for all. The same count on all ranks. Reports to `observer` (may be null) its parts of the time, its
  // waits, and one ExchangeRecord (`name`, family "all-reduce") whose bytes are those this rank read: logical
  // from all ranks' memory, physical from other ranks', internode from other nodes'. A single rank reads nothing.
  Result<void> all_reduce_sum(const char* name, std::span<float> values, Deadline deadline, Observer* observer);

  // Rank 0 receives every rank's bytes (sizes may differ), the others an empty vector.
  Result<std::vector<std::vector<std::byte>>> gather_bytes(std::span<const std::byte> mine, Deadline deadline);

 private:
  struct Call;
  friend class Reduction;
  Collectives(Communicator& comm, Window scratch);
  Result<Wait> meet(const Call& call, Deadline deadline);
  Result<void> swap(std::span<const std::byte> mine, const char* name, std::uint64_t number, Deadline deadline);
  std::span<const std::byte> bytes_of(Rank peer, std::size_t size, std::uint64_t turn) const;

  Communicator* comm_;
  Window scratch_;
  NodeMap nodes_;
  std::vector<std::byte> far_;  // [R] slots, those of other nodes' ranks
  std::vector<float> room_;     // for the pieces of other nodes' sums
  std::vector<Message> messages_;
  std::uint64_t number_ = 0;  // of the last call
  std::uint64_t chunks_ = 0;
  std::uint64_t reductions_ = 0;
};

}  // namespace moetax
