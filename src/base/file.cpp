#include "moetax/base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "moetax/base/byte_stream.h"

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

// The size, 0 where it is not known beforehand, as of pipes and files in /proc.
Result<std::size_t> check_open(const FileDescriptor& file, const std::string& path) {
  struct stat status {};
  if (file.get() < 0 || fstat(file.get(), &status) != 0) return cannot_read(path);
  if (S_ISDIR(status.st_mode)) return fail(ErrorCode::kBadInput, path + ": is a directory, expected a file");
  return status.st_size > 0 ? static_cast<std::size_t>(status.st_size) : std::size_t{0};
}

// Up to `size` bytes into `to`; 0 at the end.
Result<std::size_t> read_some(const FileDescriptor& file, const std::string& path, char* to, std::size_t size) {
  while (true) {
    const ssize_t got = read(file.get(), to, size);
    if (got >= 0) return static_cast<std::size_t>(got);
    if (errno != EINTR) return cannot_read(path);
  }
}

// Up to `max_bytes` and one more, until the end comes. `expected` is only a hint.
Result<std::string> read_up_to(const FileDescriptor& file, const std::string& path, std::size_t max_bytes,
                               std::size_t expected) {
  constexpr std::size_t kChunk = std::size_t{1} << 16;
  std::string text;
  std::size_t size = 0;
  while (size <= max_bytes) {
    text.resize(std::max(std::min(expected, max_bytes) + 1, size + kChunk));
    MOETAX_ASSIGN(const std::size_t got, read_some(file, path, text.data() + size, text.size() - size));
    if (got == 0) break;
    size += got;
  }
  text.resize(size);
  return text;
}

Result<void> refuse_packed(std::string_view text, const std::string& path) {
  if (!text.starts_with("\x1f\x8b")) return {};
  return fail(ErrorCode::kBadInput, fmt::format("{}: is gzip-compressed; unpack it first: gzip -dk '{}'", path, path));
}

// Lines that are whole, of the beginning and of the end of a text.
void cut_behind(std::string& text) {
  if (const std::size_t end = text.rfind('\n'); end != std::string::npos) text.resize(end + 1);
}
void cut_before(std::string& text) {
  if (const std::size_t begin = text.find('\n'); begin != std::string::npos) text.erase(0, begin + 1);
}

// Up to `size` bytes more behind `text`; how many there were.
std::size_t append(ByteStream& bytes, std::size_t size, std::string& text) {
  const std::size_t before = text.size();
  text.resize(before + size);
  const std::size_t got = bytes.read(text.data() + before, size);
  text.resize(before + got);
  return got;
}

// How long it is shows only at its end: of what comes after the first half the last half is kept.
TextEnds unpacked_ends(ByteStream& bytes, std::size_t max_bytes) {
  constexpr std::size_t kMost = std::size_t{16} << 30;
  constexpr std::size_t kChunk = std::size_t{1} << 20;
  const std::size_t half = max_bytes / 2;
  std::string head, tail;
  while (head.size() <= max_bytes && append(bytes, kChunk, head) > 0) continue;
  if (head.size() <= max_bytes) return {std::move(head), 0, bytes.trouble()};
  std::size_t all = head.size();
  tail = head.substr(half);
  head.resize(half);
  for (std::size_t got = 1; got > 0 && all < kMost; all += got) {
    got = append(bytes, kChunk, tail);
    if (tail.size() > max_bytes + kChunk) tail.erase(0, tail.size() - half);
  }
  tail.erase(0, tail.size() - std::min(tail.size(), half));
  cut_behind(head);
  cut_before(tail);
  const std::size_t left_out = all - head.size() - tail.size();
  return {head + tail, left_out, all < kMost ? bytes.trouble() : "its first 16 GiB were unpacked, no more"};
}

bool is_packed(std::string_view text) {
  return text.starts_with("\x1f\x8b") || text.starts_with("\x28\xb5\x2f\xfd");
}

}  // namespace

Result<std::string> read_text_file(const std::string& path, std::size_t max_bytes) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  MOETAX_ASSIGN(const std::size_t expected, check_open(file, path));
  MOETAX_ASSIGN(std::string text, read_up_to(file, path, max_bytes, expected));
  if (text.size() > max_bytes) {
    return fail(ErrorCode::kBadInput,
                fmt::format("{}: holds more than the {} bytes such a file may have", path, max_bytes));
  }
  MOETAX_TRY(refuse_packed(text, path));
  return text;
}

Result<TextEnds> read_text_ends(const std::string& path, std::size_t max_bytes) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  MOETAX_ASSIGN(const std::size_t size, check_open(file, path));
  const bool cut = size > max_bytes;
  const std::size_t half = max_bytes / 2;
  MOETAX_ASSIGN(std::string text, read_up_to(file, path, cut ? half : max_bytes, size));
  if (is_packed(text) && !cut) return unpacked_ends(*bytes_of(text), max_bytes);
  if (is_packed(text)) {
    MOETAX_ASSIGN(const auto bytes, open_bytes(path));
    return unpacked_ends(*bytes, max_bytes);
  }
  if (!cut) {
    const std::size_t more = text.size() > max_bytes ? text.size() - max_bytes : 0;  // a pipe that goes on
    text.resize(text.size() - more);
    return TextEnds{std::move(text), more};
  }
  cut_behind(text);
  if (lseek(file.get(), static_cast<off_t>(size - half), SEEK_SET) < 0) return cannot_read(path);
  MOETAX_ASSIGN(std::string tail, read_up_to(file, path, half, half));
  cut_before(tail);
  const std::size_t left_out = size - std::min(size, text.size() + tail.size());
  return TextEnds{text + tail, left_out};
}

Result<void> read_text_pieces(const std::string& path, FunctionRef<void(std::string_view)> take) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  MOETAX_TRY(check_open(file, path));
  std::string piece(std::size_t{256} << 10, '\0');
  for (bool first = true;; first = false) {
    MOETAX_ASSIGN(const std::size_t got, read_some(file, path, piece.data(), piece.size()));
    if (got == 0) return {};
    if (first) MOETAX_TRY(refuse_packed(std::string_view(piece).substr(0, got), path));
    take(std::string_view(piece).substr(0, got));
  }
}

}  // namespace moetax
