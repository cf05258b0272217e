#include "moetax/base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace moetax {
namespace {

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

Unexpected cannot_read(const std::string& path) {
  return fail(ErrorCode::kBadInput, fmt::format("{}: cannot be read: {}", path, std::strerror(errno)));
}

}  // namespace

Result<std::string> read_text_file(const std::string& path, std::size_t max_bytes) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (file.get() < 0 || fstat(file.get(), &status) != 0) return cannot_read(path);
  if (S_ISDIR(status.st_mode)) return fail(ErrorCode::kBadInput, path + ": is a directory, expected a file");

  // The size of a pipe or of a file in /proc is not known beforehand, so the loop reads until the end comes.
  constexpr std::size_t kChunk = std::size_t{1} << 16;
  const auto expected = status.st_size > 0 ? static_cast<std::size_t>(status.st_size) : 0;
  std::string text;
  std::size_t size = 0;
  while (size <= max_bytes) {
    text.resize(std::max(std::min(expected, max_bytes) + 1, size + kChunk));
    const ssize_t got = read(file.get(), text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return cannot_read(path);
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  if (size > max_bytes) {
    return fail(ErrorCode::kBadInput,
                fmt::format("{}: holds more than the {} bytes such a file may have", path, max_bytes));
  }
  text.resize(size);
  if (text.starts_with("\x1f\x8b")) {
    return fail(ErrorCode::kBadInput,
                fmt::format("{}: is gzip-compressed; unpack it first: gzip -dk '{}'", path, path));
  }
  return text;
}

}  // namespace moetax
