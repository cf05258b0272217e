#include "transport/node_door.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace moetax {
namespace {

struct Address {
  sockaddr_un name{};
  socklen_t bytes = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&name); }
};

Address abstract_address(const std::string& name) {
  Address address;
  address.name.sun_family = AF_UNIX;
  const std::size_t length = std::min(name.size(), sizeof address.name.sun_path - 1);
  std::memcpy(address.name.sun_path + 1, name.data(), length);  // the first byte stays 0: abstract
  address.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  return address;
}

bool ready(int socket, Deadline deadline) {
  pollfd waited{socket, POLLIN, 0};
  const std::int64_t left_ms = std::max<std::int64_t>(0, (deadline.at_ns() - now_ns()) / 1'000'000);
  return poll(&waited, 1, static_cast<int>(std::min<std::int64_t>(left_ms, 1'000'000))) == 1;
}

bool same_user(int socket) {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == geteuid();
}

// A message of one byte with a descriptor beside it; the same layout for both directions.
struct Parcel {
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr header{};
  Parcel() {
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
  }
};

void give(int socket, int file) {
  Parcel parcel;
  cmsghdr* rights = CMSG_FIRSTHDR(&parcel.header);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof file);
  std::memcpy(CMSG_DATA(rights), &file, sizeof file);
  // One that has gone away meanwhile gets nothing, and says so itself.
  static_cast<void>(sendmsg(socket, &parcel.header, MSG_NOSIGNAL | MSG_DONTWAIT));
}

}  // namespace

Result<NodeDoor> NodeDoor::open() {
  std::array<std::uint64_t, 2> key{};
  if (getrandom(key.data(), sizeof key, 0) != static_cast<ssize_t>(sizeof key)) {
    return fail(ErrorCode::kUnavailable, fmt::format("no random numbers: {}", std::strerror(errno)));
  }
  NodeDoor door(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), fmt::format("moetax-{:016x}{:016x}", key[0], key[1]));
  const Address address = abstract_address(door.name_);
  if (door.socket_ < 0 || bind(door.socket_, address.get(), address.bytes) != 0 ||
      listen(door.socket_, SOMAXCONN) != 0) {
    return fail(ErrorCode::kUnavailable, fmt::format("cannot open a Unix socket: {}", std::strerror(errno)));
  }
  return door;
}

NodeDoor::NodeDoor(NodeDoor&& other) noexcept
    : socket_(std::exchange(other.socket_, -1)), name_(std::move(other.name_)) {}

NodeDoor::~NodeDoor() {
  if (socket_ >= 0) close(socket_);
}

void NodeDoor::hand_out(int file, int count, Deadline deadline) const {
  while (count > 0 && ready(socket_, deadline)) {
    const int visitor = accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
    if (visitor < 0) continue;
    if (same_user(visitor)) {
      give(visitor, file);
      --count;
    }
    close(visitor);
  }
}

NodeKnock::NodeKnock(const std::string& door) {
  const Address address = abstract_address(door);
  socket_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket_ < 0 || (connect(socket_, address.get(), address.bytes) == 0 && same_user(socket_))) return;
  close(std::exchange(socket_, -1));
}

NodeKnock::~NodeKnock() {
  if (socket_ >= 0) close(socket_);
}

int NodeKnock::take(Deadline deadline) const {
  Parcel parcel;
  if (!ready(socket_, deadline) || recvmsg(socket_, &parcel.header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) <= 0) return -1;
  const cmsghdr* rights = CMSG_FIRSTHDR(&parcel.header);
  if (!rights || rights->cmsg_type != SCM_RIGHTS || rights->cmsg_len != CMSG_LEN(sizeof(int))) return -1;
  int file = -1;
  std::memcpy(&file, CMSG_DATA(rights), sizeof file);
  return file;
}

}  // namespace moetax
