// The one piece of shared memory of a job: an anonymous file that grows, and its mappings in this process.
//
// The file has no name anywhere, so nothing is left behind however the ranks end. It is sparse: ranges are address
// space until they are touched.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "moetax/base/result.h"

namespace moetax {

inline constexpr std::size_t kSegmentGrain = std::size_t{2} << 20;  // a huge page

constexpr std::size_t round_to_grain(std::size_t bytes) {
  return (bytes + kSegmentGrain - 1) / kSegmentGrain * kSegmentGrain;
}

// A mapped range of the file, 2 MiB aligned, unmapped when the last owner lets go.
class Mapping {
 public:
  Mapping(std::byte* data, std::size_t bytes) : data_(data), bytes_(bytes) {}
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  std::byte* data() const { return data_; }

 private:
  std::byte* data_;
  std::size_t bytes_;
};

// Thread-safe, and safe between the processes that inherit it by fork.
class Segment {
 public:
  // The first range holds `first_bytes`; its first word counts what is taken of the file.
  static Result<std::shared_ptr<Segment>> create(std::size_t first_bytes);
  // The same file in another process, by a descriptor of its own, which this takes over.
  static Result<std::shared_ptr<Segment>> attach(int file, std::size_t first_bytes);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  int file() const { return file_; }
  std::byte* first() const { return first_->data() + kFirstOffset; }

  // Takes a fresh, zero-filled range of the file and returns its offset.
  Result<std::uint64_t> allocate(std::size_t bytes);

  // Maps a range. Within a process the same range is mapped once: thread ranks see one address, which is what lets
  // ThreadSanitizer check their use of it.
  Result<std::shared_ptr<Mapping>> map(std::uint64_t offset, std::size_t bytes);

  // Gives the pages of a range back to the system; they read as zero afterwards.
  void drop_pages(std::uint64_t offset, std::size_t bytes);

 private:
  static constexpr std::size_t kFirstOffset = 64;
  explicit Segment(int file) : file_(file) {}
  std::atomic<std::uint64_t>& taken() const { return *reinterpret_cast<std::atomic<std::uint64_t>*>(first_->data()); }
  Result<void> grow(std::uint64_t bytes);

  int file_;
  std::shared_ptr<Mapping> first_;
  std::mutex mutex_;
  std::map<std::uint64_t, std::weak_ptr<Mapping>> mapped_;  // by offset
};

// Asks for the pages of [data, data + bytes) to be placed on the NUMA node this thread runs on, whoever touches them
// first. Does nothing on a machine with one node.
void prefer_own_numa_node(std::byte* data, std::size_t bytes);

}  // namespace moetax
