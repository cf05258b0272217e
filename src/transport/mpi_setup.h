// How the ranks of an MPI communicator find out who shares a node, and how far apart their clocks are.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "moetax/base/clock.h"
#include "moetax/base/result.h"
#include "moetax/transport/mpi.h"
#include "transport/mpi_link.h"

namespace moetax {

// Calls of MPI that come to an end by their deadline, before there is a link.
class MpiTalk {
 public:
  // A communicator of its own over the ranks of `comm`, with errors returned. kPeerFailed if others do not come to it.
  static Result<MPI_Comm> duplicate(MPI_Comm comm, Deadline deadline);

  MpiTalk(MPI_Comm comm, Deadline deadline);
  Rank rank() const { return rank_; }
  int size() const { return size_; }

  // Everybody's `mine` (all of one size) in rank order, through rank 0, whose error names who did not come.
  Result<std::vector<std::byte>> gather(std::span<const std::byte> mine);
  template <class T>
  Result<std::vector<T>> gather(const T& mine);

  Result<void> send(Rank to, std::span<const std::byte> bytes);
  Result<void> receive(Rank from, std::span<std::byte> bytes);

 private:
  Result<void> finish(std::span<MPI_Request> requests, std::span<const Rank> peers);

  MPI_Comm comm_;
  Deadline deadline_;
  Rank rank_ = 0;
  int size_ = 1;
};

template <class T>
Result<std::vector<T>> MpiTalk::gather(const T& mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  MOETAX_ASSIGN(const auto bytes, gather(std::as_bytes(std::span(&mine, 1))));
  std::vector<T> all(static_cast<std::size_t>(size_));
  std::memcpy(all.data(), bytes.data(), bytes.size());
  return all;
}

// What a rank knows of its surroundings when all have talked.
struct MpiNode {
  std::shared_ptr<Segment> segment;
  std::shared_ptr<const Places> places;
  std::vector<std::int64_t> offset_ns;  // by node
  int ranks_here = 1;
  int cores_here = 1;  // that the ranks of this node may use together
  NodeMates mates;
};
Result<MpiNode> find_node(MpiTalk& talk, const MpiOptions& options, Deadline deadline);

}  // namespace moetax
