#include "transport/mpi_requests.h"

#include <fmt/format.h>

#include <algorithm>

namespace moetax {

std::string mpi_error_text(const char* call, int code) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  return fmt::format("{}: {}", call, text);
}

bool MpiRequests::check(int code, const char* call) {
  if (code == MPI_SUCCESS) return true;
  on_error_(mpi_error_text(call, code));
  return false;
}

void MpiRequests::add(MPI_Request request, Owner& owner, std::uint32_t id, bool is_receive) {
  requests_.push_back(request);
  entries_.push_back({&owner, id, is_receive});
  indices_.resize(requests_.capacity());
  statuses_.resize(requests_.capacity());
}

void MpiRequests::progress() {
  if (requests_.empty()) return;
  int count = 0;
  const int code =
      MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, indices_.data(), statuses_.data());
  int error_class = MPI_SUCCESS;
  if (code != MPI_SUCCESS) MPI_Error_class(code, &error_class);
  const bool look_for_errors = error_class == MPI_ERR_IN_STATUS;
  if (code != MPI_SUCCESS && !look_for_errors) {
    check(code, "MPI_Testsome");
    return;
  }
  if (count <= 0) return;
  finished_.clear();
  for (int i = 0; i < count; ++i) {
    finished_.push_back({entries_[static_cast<std::size_t>(indices_[static_cast<std::size_t>(i)])],
                         statuses_[static_cast<std::size_t>(i)]});
  }
  // From the back, so that what takes a removed one's place is not itself to be removed.
  std::sort(indices_.begin(), indices_.begin() + count, std::greater<>());
  for (int i = 0; i < count; ++i) remove(static_cast<std::size_t>(indices_[static_cast<std::size_t>(i)]));
  for (const Finished& finished : finished_) tell(finished, look_for_errors);
}

void MpiRequests::tell(const Finished& finished, bool look_for_error) {
  const MPI_Status& status = finished.status;
  bool truncated = false;
  if (look_for_error && status.MPI_ERROR != MPI_SUCCESS && status.MPI_ERROR != MPI_ERR_PENDING) {
    int error_class = MPI_SUCCESS;
    MPI_Error_class(status.MPI_ERROR, &error_class);
    truncated = error_class == MPI_ERR_TRUNCATE;
    if (!truncated) return static_cast<void>(check(status.MPI_ERROR, "a message between nodes"));
  }
  MPI_Count bytes = 0;
  if (finished.entry.is_receive) MPI_Get_elements_x(&status, MPI_BYTE, &bytes);
  finished.entry.owner->completed(finished.entry.id, status.MPI_SOURCE, bytes < 0 ? 0 : static_cast<std::size_t>(bytes),
                                  truncated);
}

void MpiRequests::remove(std::size_t idx) {
  requests_[idx] = requests_.back();
  entries_[idx] = entries_.back();
  requests_.pop_back();
  entries_.pop_back();
}

void MpiRequests::drop(const Owner& owner) {
  for (std::size_t i = requests_.size(); i-- > 0;) {
    if (entries_[i].owner != &owner) continue;
    if (entries_[i].is_receive) MPI_Cancel(&requests_[i]);
    MPI_Request_free(&requests_[i]);
    remove(i);
  }
}

}  // namespace moetax
