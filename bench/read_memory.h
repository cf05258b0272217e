// Reads memory as fast as the machine can, with vectors and on several threads: the limit of everything that must read
// weights once.
#pragma once

#include <cstddef>

namespace moetax::bench {

// Each thread reads one contiguous share.
void read_in_halves(const std::byte* data, std::size_t bytes, int threads);
// Threads take turns at blocks of 64 KiB, so that they read neighbouring pages at the same time.
void read_in_blocks(const std::byte* data, std::size_t bytes, int threads);

}  // namespace moetax::bench
