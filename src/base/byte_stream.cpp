#include "moetax/base/byte_stream.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

namespace moetax {
namespace {

class FileStream : public ByteStream {
 public:
  explicit FileStream(int fd) : fd_(fd) {}
  ~FileStream() override { close(fd_); }
  FileStream(const FileStream&) = delete;
  FileStream& operator=(const FileStream&) = delete;
  std::size_t read(char* to, std::size_t size) override {
    std::size_t got = 0;
    while (got < size) {
      const ssize_t n = ::read(fd_, to + got, size - got);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) trouble_ = fmt::format("cannot be read on: {}", std::strerror(errno));
      if (n <= 0) break;
      got += static_cast<std::size_t>(n);
    }
    return got;
  }

 private:
  int fd_;
};

class TextStream : public ByteStream {
 public:
  explicit TextStream(std::string_view text) : rest_(text) {}
  std::size_t read(char* to, std::size_t size) override {
    const std::size_t n = std::min(size, rest_.size());
    std::copy_n(rest_.data(), n, to);
    rest_.remove_prefix(n);
    return n;
  }

 private:
  std::string_view rest_;
};

// A stream that a few bytes were taken from, put back in front; and the buffer that unpackers draw from.
class Source {
 public:
  Source(std::unique_ptr<ByteStream> from, std::string_view head) : from_(std::move(from)), buffer_(kSize) {
    std::copy(head.begin(), head.end(), buffer_.begin());
    end_ = head.size();
  }
  // What has not been used yet; more of it if there is none. Empty at the end.
  std::string_view more() {
    if (begin_ == end_) {
      begin_ = 0;
      end_ = from_->read(buffer_.data(), buffer_.size());
    }
    return {buffer_.data() + begin_, end_ - begin_};
  }
  void used(std::size_t n) { begin_ += n; }
  const std::string& trouble() const { return from_->trouble(); }

 private:
  static constexpr std::size_t kSize = std::size_t{1} << 18;
  std::unique_ptr<ByteStream> from_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0, end_ = 0;
};

class PlainStream : public ByteStream {
 public:
  PlainStream(std::unique_ptr<ByteStream> from, std::string_view head) : from_(std::move(from)), head_(head) {}
  std::size_t read(char* to, std::size_t size) override {
    const std::size_t n = std::min(size, head_.size());
    std::copy_n(head_.data(), n, to);
    head_.erase(0, n);
    const std::size_t got = n + (n < size ? from_->read(to + n, size - n) : 0);
    trouble_ = from_->trouble();
    return got;
  }

 private:
  std::unique_ptr<ByteStream> from_;
  std::string head_;
};

class GzipStream : public ByteStream {
 public:
  explicit GzipStream(Source source) : source_(std::move(source)) {
    constexpr int kGzipOrZlib = 15 + 32;
    if (inflateInit2(&zip_, kGzipOrZlib) != Z_OK) done_ = true;
  }
  ~GzipStream() override { inflateEnd(&zip_); }
  GzipStream(const GzipStream&) = delete;
  GzipStream& operator=(const GzipStream&) = delete;

  std::size_t read(char* to, std::size_t size) override {
    std::size_t got = 0;
    while (got < size && !done_) {
      const std::string_view packed = source_.more();
      if (packed.empty()) {
        if (!between_members_) trouble_ = "the gzip data end too early";
        if (!source_.trouble().empty()) trouble_ = source_.trouble();
        break;
      }
      got += inflate_some(packed, to + got, size - got);
    }
    return got;
  }

 private:
  std::size_t inflate_some(std::string_view packed, char* to, std::size_t size) {
    const auto room = static_cast<uInt>(std::min<std::size_t>(size, UINT32_MAX));
    // zlib's interface predates const.
    zip_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
    zip_.avail_in = static_cast<uInt>(packed.size());
    zip_.next_out = reinterpret_cast<Bytef*>(to);
    zip_.avail_out = room;
    const int status = inflate(&zip_, Z_NO_FLUSH);
    source_.used(packed.size() - zip_.avail_in);
    if (status == Z_STREAM_END) {
      inflateReset(&zip_);  // another member may follow
    } else if (status != Z_OK && status != Z_BUF_ERROR) {
      // What follows a member and is no other member is padding.
      if (!between_members_) trouble_ = "the gzip data are damaged";
      done_ = true;
    }
    between_members_ = status == Z_STREAM_END;
    return room - zip_.avail_out;
  }

  Source source_;
  z_stream zip_{};
  bool between_members_ = false, done_ = false;
};

class ZstdStream : public ByteStream {
 public:
  explicit ZstdStream(Source source) : source_(std::move(source)), zip_(ZSTD_createDStream(), ZSTD_freeDStream) {}
  std::size_t read(char* to, std::size_t size) override {
    ZSTD_outBuffer out{to, size, 0};
    while (out.pos < size && !done_) {
      const std::string_view packed = source_.more();
      if (packed.empty()) {
        if (in_frame_) trouble_ = "the zstd data end too early";
        break;
      }
      ZSTD_inBuffer in{packed.data(), packed.size(), 0};
      const std::size_t status = ZSTD_decompressStream(zip_.get(), &out, &in);
      source_.used(in.pos);
      in_frame_ = status != 0;
      if (ZSTD_isError(status)) {
        trouble_ = fmt::format("the zstd data are damaged: {}", ZSTD_getErrorName(status));
        done_ = true;
      }
    }
    return out.pos;
  }

 private:
  Source source_;
  std::unique_ptr<ZSTD_DStream, std::size_t (*)(ZSTD_DStream*)> zip_;
  bool in_frame_ = false, done_ = false;
};

std::unique_ptr<ByteStream> unpacked(std::unique_ptr<ByteStream> from) {
  char head[4];
  const std::size_t n = from->read(head, sizeof head);
  const std::string_view magic(head, n);
  if (magic.starts_with("\x1f\x8b")) return std::make_unique<GzipStream>(Source(std::move(from), magic));
  if (magic == "\x28\xb5\x2f\xfd") return std::make_unique<ZstdStream>(Source(std::move(from), magic));
  return std::make_unique<PlainStream>(std::move(from), magic);
}

}  // namespace

Result<std::unique_ptr<ByteStream>> open_bytes(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return fail(ErrorCode::kBadInput, fmt::format("{}: cannot be read: {}", path, std::strerror(errno)));
  auto file = std::make_unique<FileStream>(fd);
  struct stat status {};
  if (fstat(fd, &status) == 0 && S_ISDIR(status.st_mode)) {
    return fail(ErrorCode::kBadInput, path + ": is a directory, expected a file");
  }
  return unpacked(std::move(file));
}

std::unique_ptr<ByteStream> bytes_of(std::string_view text) {
  return unpacked(std::make_unique<TextStream>(text));
}

}  // namespace moetax
