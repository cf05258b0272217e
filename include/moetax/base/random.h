// Random numbers addressed by index: the i-th number of a stream is a function of (seed, stream, i), so every rank can
// make the tokens and weights it owns, whatever the number of ranks, and all see the same model.
#pragma once

#include <cstdint>

namespace moetax {

// splitmix64's finaliser: a bijection of 64-bit numbers with good avalanche.
constexpr std::uint64_t mix64(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

struct RandomStream {
  std::uint64_t key = 0;

  constexpr RandomStream(std::uint64_t seed, std::uint64_t stream)
      : key(mix64(mix64(seed + 0x9e3779b97f4a7c15ull) ^ (stream * 0xd1342543de82ef95ull))) {}
  constexpr std::uint64_t bits(std::uint64_t i) const { return mix64(key + i * 0x9e3779b97f4a7c15ull); }
  // Uniform in [0, 1).
  constexpr double uniform(std::uint64_t i) const { return static_cast<double>(bits(i) >> 11) * 0x1.0p-53; }
  // Mean 0, variance 1, near Gaussian: the sum of four 16-bit uniforms. Cheap, no branches.
  constexpr float normal(std::uint64_t i) const {
    const std::uint64_t b = bits(i);
    const auto sum = static_cast<std::int64_t>((b & 0xffff) + ((b >> 16) & 0xffff) + ((b >> 32) & 0xffff) + (b >> 48));
    constexpr float kScale = 1.0f / 37837.2f;  // sqrt(4 * (2^32 - 1) / 12)
    return static_cast<float>(sum - 131070) * kScale;
  }
};

}  // namespace moetax
