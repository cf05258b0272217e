// The ways of rows between nodes: a word that the exchange, its costs and the command line share.
#pragma once

#include <cstddef>
#include <cstdint>

namespace moetax {

// How rows travel between ranks of different nodes, which share no memory. Inside a node they always go from memory to
// memory, whatever is chosen. All give the same bits but two-level, whose sums depend on which ranks share a node.
enum class ExchangeAlgorithm : std::uint8_t {
  kFlat,      // to each destination rank, in staggered rounds: one receiver is never fed by two senders
  kDirect,    // to each destination rank, all at once
  kRing,      // through neighbouring nodes, at most half way round
  kMesh2d,    // along the rows and then the columns of a grid of nodes: two hops
  kTwoLevel,  // once to each destination node, fanned out inside; back comes one partial sum per node, in the rows'
              // type
};
inline constexpr int kNumExchangeAlgorithms = 5;

// "flat", "direct", "ring", "mesh2d", "two-level"
constexpr const char* to_string(ExchangeAlgorithm algorithm) {
  constexpr const char* kNames[kNumExchangeAlgorithms] = {"flat", "direct", "ring", "mesh2d", "two-level"};
  return kNames[static_cast<int>(algorithm)];
}

// A rank of few tokens lays its rows open inside a node, where their receivers fetch them, instead of pushing them: so
// many rows, and so much of a core's second-level cache, at most. Offered rows are copied once more, by their rank and
// in its cache, and each receiver looks through all choices: beyond, that costs more than the flag it saves.
inline constexpr std::int64_t kMaxOfferedRows = 256;
inline constexpr std::size_t kUsualL2Bytes = std::size_t{1} << 20;  // where a machine does not say
constexpr std::int64_t offered_limit_bytes(std::size_t l2_bytes) {
  return static_cast<std::int64_t>((l2_bytes ? l2_bytes : kUsualL2Bytes) / 4);
}

}  // namespace moetax
