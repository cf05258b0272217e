// How processes of one machine come to share a memory that has no name: the first of them opens a door, the others
// knock, and who gets through is handed the descriptor. That the descriptor arrived is the proof that they share the
// machine: host names and boot ids are the same in containers that share nothing.
//
// The door is an abstract Unix socket: no file, gone with its process, seen only inside its network namespace. Its
// name is drawn at random and told through other channels, and only processes of the same user get an answer.
#pragma once

#include <cstddef>
#include <string>

#include "moetax/base/clock.h"
#include "moetax/base/result.h"

namespace moetax {

class NodeDoor {
 public:
  static Result<NodeDoor> open();
  ~NodeDoor();
  NodeDoor(NodeDoor&& other) noexcept;
  NodeDoor& operator=(NodeDoor&&) = delete;

  const std::string& name() const { return name_; }
  // Hands `file` to as many as have knocked, `count`, or as come until the deadline.
  void hand_out(int file, int count, Deadline deadline) const;

 private:
  NodeDoor(int socket, std::string name) : socket_(socket), name_(std::move(name)) {}
  int socket_;
  std::string name_;
};

class NodeKnock {
 public:
  // Whether there is such a door here. Does not wait.
  explicit NodeKnock(const std::string& door);
  ~NodeKnock();
  NodeKnock(const NodeKnock&) = delete;
  NodeKnock& operator=(const NodeKnock&) = delete;

  bool heard() const { return socket_ >= 0; }
  // The descriptor handed out, the caller's to close; -1 if none came.
  int take(Deadline deadline) const;

 private:
  int socket_ = -1;
};

}  // namespace moetax
