#include "transport/node_mates.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace moetax {

NodeMates::~NodeMates() {
  for (const auto& [rank, handle] : handles_) close(handle);
}

void NodeMates::watch(Rank rank, pid_t process) {
  const int handle = static_cast<int>(syscall(SYS_pidfd_open, process, 0));
  if (handle >= 0) handles_.emplace_back(rank, handle);
}

void NodeMates::watch_parent() {
  parent_ = getppid();
}

pid_t NodeMates::lost_parent() const {
  return parent_ != 0 && getppid() != parent_ ? parent_ : 0;
}

bool NodeMates::has_ended(int handle) {
  pollfd ended{handle, POLLIN, 0};
  return poll(&ended, 1, 0) == 1;
}

Rank NodeMates::forget(std::size_t idx) {
  const auto [rank, handle] = handles_[idx];
  close(handle);
  handles_.erase(handles_.begin() + static_cast<std::ptrdiff_t>(idx));
  return rank;
}

}  // namespace moetax
