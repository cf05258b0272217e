#include "read_memory.h"

#include <algorithm>
#include <cstdint>

#include "moetax/base/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "read_memory.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace moetax::bench {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

void ReadAll(const std::byte* data, std::size_t bytes) {
  const hn::ScalableTag<std::uint64_t> d;
  const std::size_t step = hn::Lanes(d) * sizeof(std::uint64_t);
  auto a = hn::Zero(d), b = a, c = a, e = a;
  std::size_t at = 0;
  for (; at + 4 * step <= bytes; at += 4 * step) {
    const auto load = [&](std::size_t i) HWY_ATTR {
      return hn::LoadU(d, reinterpret_cast<const std::uint64_t*>(data + at + i * step));
    };
    a = hn::Xor(a, load(0));
    b = hn::Xor(b, load(1));
    c = hn::Xor(c, load(2));
    e = hn::Xor(e, load(3));
  }
  const std::uint64_t sum = hn::GetLane(hn::Xor(hn::Xor(a, b), hn::Xor(c, e)));
  asm volatile("" : : "r"(sum));  // the reads must happen
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace moetax::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moetax::bench {

HWY_EXPORT(ReadAll);

void read_in_halves(const std::byte* data, std::size_t bytes, int threads) {
  parallel_for(static_cast<std::int64_t>(bytes), threads, 4096, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(ReadAll)(data + begin, static_cast<std::size_t>(end - begin));
  });
}

void read_in_blocks(const std::byte* data, std::size_t bytes, int threads) {
  constexpr std::size_t kBlock = std::size_t{64} << 10;
  parallel_for(threads, threads, 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto thread = static_cast<std::size_t>(begin); thread < static_cast<std::size_t>(end); ++thread) {
      for (std::size_t at = thread * kBlock; at < bytes; at += static_cast<std::size_t>(threads) * kBlock) {
        HWY_DYNAMIC_DISPATCH(ReadAll)(data + at, std::min(kBlock, bytes - at));
      }
    }
  });
}

}  // namespace moetax::bench
#endif
