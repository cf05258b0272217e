#include "moetax/base/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>

namespace moetax {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

}  // namespace

Result<PageBuffer> PageBuffer::reserve(std::size_t bytes) {
  PageBuffer buffer;
  if (bytes == 0) return buffer;
  // A huge page more than is asked for, to align within. Rounding up must not wrap around to a small mapping.
  const std::size_t map_bytes = (bytes + kHugePage - 1) / kHugePage * kHugePage + kHugePage;
  errno = ENOMEM;
  void* map = map_bytes < bytes ? MAP_FAILED
                                : mmap(nullptr, map_bytes, PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("cannot reserve {} bytes of address space: {}", bytes, std::strerror(errno)));
  }
  const auto address = reinterpret_cast<std::uintptr_t>(map);
  buffer.data_ = reinterpret_cast<std::byte*>((address + kHugePage - 1) / kHugePage * kHugePage);
  buffer.bytes_ = bytes;
  buffer.map_ = map;
  buffer.map_bytes_ = map_bytes;
  // Advice only: without transparent huge pages the mapping works all the same.
  madvise(buffer.data_, map_bytes - kHugePage, MADV_HUGEPAGE);
  return buffer;
}

void PageBuffer::reset() {
  if (map_) munmap(map_, map_bytes_);
  data_ = nullptr;
  map_ = nullptr;
  bytes_ = map_bytes_ = 0;
}

std::size_t resident_bytes(const void* data, std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(data) / page * page;
  const auto end = (reinterpret_cast<std::uintptr_t>(data) + bytes + page - 1) / page * page;
  std::array<unsigned char, 4096> in_core;
  std::size_t resident = 0;
  for (std::uintptr_t at = begin; at < end; at += in_core.size() * page) {
    const std::size_t span = std::min(end - at, in_core.size() * page);
    if (mincore(reinterpret_cast<void*>(at), span, in_core.data()) != 0) continue;
    for (std::size_t i = 0; i < span / page; ++i) resident += (in_core[i] & 1) * page;
  }
  return std::min(resident, bytes);
}

}  // namespace moetax
