// Large private memory: reserved as address space, touched on use, on huge pages where the kernel gives them.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "moetax/base/result.h"

namespace moetax {

// Owns an anonymous private mapping, 2 MiB aligned and zero-filled. Move-only. Pages are taken when first touched, on
// the NUMA node of the thread that touches them. Not thread-safe to move; the memory itself is plain memory.
class PageBuffer {
 public:
  PageBuffer() = default;
  // kUnavailable if the address space cannot be had. Zero bytes give an empty buffer.
  static Result<PageBuffer> reserve(std::size_t bytes);
  ~PageBuffer() { reset(); }
  PageBuffer(PageBuffer&& other) noexcept { swap(other); }
  PageBuffer& operator=(PageBuffer&& other) noexcept {
    if (this != &other) {
      reset();
      swap(other);
    }
    return *this;
  }
  PageBuffer(const PageBuffer&) = delete;
  PageBuffer& operator=(const PageBuffer&) = delete;

  std::byte* data() const { return data_; }
  std::size_t size() const { return bytes_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  template <class T>
  std::span<T> span_of() const {
    return {as<T>(), bytes_ / sizeof(T)};
  }

 private:
  void reset();
  void swap(PageBuffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(map_, other.map_);
    std::swap(map_bytes_, other.map_bytes_);
  }
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  void* map_ = nullptr;
  std::size_t map_bytes_ = 0;
};

// Bytes of [data, data + bytes) that have physical pages now.
std::size_t resident_bytes(const void* data, std::size_t bytes);

}  // namespace moetax
