#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cstring>

#include "transport/mpi_requests.h"
#include "transport/mpi_setup.h"
#include "transport/rank_text.h"

namespace moetax {
namespace {

Unexpected refused(const char* call, int code) {
  return fail(ErrorCode::kUnavailable, mpi_error_text(call, code));
}

// Calls `test` until it says yes; naps in between, after a while.
template <class Test>
bool poll_until(Deadline deadline, Test test) {
  const std::int64_t start = now_ns();
  while (!test()) {
    const std::int64_t now = now_ns();
    if (now >= deadline.at_ns()) return false;
    if (now - start < 200'000) continue;
    const timespec nap{0, std::clamp<long>((now - start) / 16, 20'000, 1'000'000)};
    nanosleep(&nap, nullptr);
  }
  return true;
}

}  // namespace

Result<MPI_Comm> MpiTalk::duplicate(MPI_Comm comm, Deadline deadline) {
  MPI_Comm own = MPI_COMM_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
  if (const int code = MPI_Comm_idup(comm, &own, &request); code != MPI_SUCCESS) return refused("MPI_Comm_idup", code);
  int code = MPI_SUCCESS;
  const bool done = poll_until(deadline, [&] {
    int flag = 0;
    code = MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
    return code != MPI_SUCCESS || flag != 0;
  });
  if (code != MPI_SUCCESS) return refused("MPI_Comm_idup", code);
  if (!done) {
    return fail(ErrorCode::kPeerFailed,
                fmt::format("not all ranks of the MPI communicator joined within {:g} s", deadline.seconds()));
  }
  MPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN);
  return own;
}

MpiTalk::MpiTalk(MPI_Comm comm, Deadline deadline) : comm_(comm), deadline_(deadline) {
  MPI_Comm_rank(comm, &rank_);
  MPI_Comm_size(comm, &size_);
}

// requests[i] is with peers[i].
Result<void> MpiTalk::finish(std::span<MPI_Request> requests, std::span<const Rank> peers) {
  int code = MPI_SUCCESS;
  const bool done = poll_until(deadline_, [&] {
    int flag = 0;
    code = MPI_Testall(static_cast<int>(requests.size()), requests.data(), &flag, MPI_STATUSES_IGNORE);
    return code != MPI_SUCCESS || flag != 0;
  });
  if (code != MPI_SUCCESS) return refused("MPI_Testall", code);
  if (done) return {};
  std::vector<Rank> missing;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    int flag = 0;
    MPI_Test(&requests[i], &flag, MPI_STATUS_IGNORE);
    if (flag == 0) missing.push_back(peers[i]);
  }
  if (missing.empty()) return {};
  std::sort(missing.begin(), missing.end());
  return fail(ErrorCode::kPeerFailed,
              fmt::format("{} did not arrive at the set-up of the mpi transport within {:g} s", format_ranks(missing),
                          deadline_.seconds()),
              missing.front());
}

Result<void> MpiTalk::send(Rank to, std::span<const std::byte> bytes) {
  MPI_Request request = MPI_REQUEST_NULL;
  const int code = MPI_Isend(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, to, kSetupTag, comm_, &request);
  if (code != MPI_SUCCESS) return refused("MPI_Isend", code);
  return finish(std::span(&request, 1), std::span(&to, 1));
}

Result<void> MpiTalk::receive(Rank from, std::span<std::byte> bytes) {
  MPI_Request request = MPI_REQUEST_NULL;
  const int code = MPI_Irecv(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, from, kSetupTag, comm_, &request);
  if (code != MPI_SUCCESS) return refused("MPI_Irecv", code);
  return finish(std::span(&request, 1), std::span(&from, 1));
}

Result<std::vector<std::byte>> MpiTalk::gather(std::span<const std::byte> mine) {
  std::vector<std::byte> all(mine.size() * static_cast<std::size_t>(size_));
  if (rank_ != 0) {
    MOETAX_TRY(send(0, mine));
    MOETAX_TRY(receive(0, all));
    return all;
  }
  std::copy(mine.begin(), mine.end(), all.begin());
  std::vector<Rank> peers;
  std::vector<MPI_Request> requests(static_cast<std::size_t>(size_ - 1), MPI_REQUEST_NULL);
  for (Rank peer = 1; peer < size_; ++peer) {
    peers.push_back(peer);
    const int code = MPI_Irecv(all.data() + static_cast<std::size_t>(peer) * mine.size(), static_cast<int>(mine.size()),
                               MPI_BYTE, peer, kSetupTag, comm_, &requests[static_cast<std::size_t>(peer - 1)]);
    if (code != MPI_SUCCESS) return refused("MPI_Irecv", code);
  }
  MOETAX_TRY(finish(requests, peers));
  for (const Rank peer : peers) {
    const int code = MPI_Isend(all.data(), static_cast<int>(all.size()), MPI_BYTE, peer, kSetupTag, comm_,
                               &requests[static_cast<std::size_t>(peer - 1)]);
    if (code != MPI_SUCCESS) return refused("MPI_Isend", code);
  }
  MOETAX_TRY(finish(requests, peers));
  return all;
}

}  // namespace moetax
