// Whether the processes that share a node's memory, and the launcher, live.
#pragma once

#include <sys/types.h>

#include <utility>
#include <vector>

#include "moetax/base/ids.h"

namespace moetax {

class NodeMates {
 public:
  NodeMates() = default;
  ~NodeMates();
  NodeMates(NodeMates&& other) noexcept
      : handles_(std::exchange(other.handles_, {})), parent_(std::exchange(other.parent_, 0)) {}
  NodeMates& operator=(NodeMates&&) = delete;

  // Processes of this PID namespace. One that cannot be watched is not.
  void watch(Rank rank, pid_t process);
  // From now on lost_parent() tells when this process's parent is not the one it has now.
  void watch_parent();

  // Calls gone(rank) for each process that has ended since the last call. Never blocks.
  template <class Gone>
  void look(Gone gone) {
    for (std::size_t i = handles_.size(); i-- > 0;) {
      if (has_ended(handles_[i].second)) gone(forget(i));
    }
  }
  // The process that is gone, or 0.
  pid_t lost_parent() const;

 private:
  static bool has_ended(int handle);
  Rank forget(std::size_t idx);

  std::vector<std::pair<Rank, int>> handles_;  // pidfds
  pid_t parent_ = 0;
};

}  // namespace moetax
