// The router's decision for a batch of tokens, and which rank holds which expert.
#pragma once

#include <cstdint>
#include <vector>

#include "moetax/base/ids.h"
#include "moetax/base/matrix.h"

namespace moetax {

// expert[t, k] and weight[t, k] for T tokens and K choices, in top-k order (best first, ties to the lower expert).
// Owns its storage; resize() keeps the capacity, so that steps of the same size allocate nothing.
class RoutingTable {
 public:
  void resize(std::int64_t tokens, int topk) {
    tokens_ = tokens;
    topk_ = topk;
    expert_.resize(static_cast<std::size_t>(tokens) * static_cast<std::size_t>(topk));
    weight_.resize(expert_.size());
  }
  std::int64_t tokens() const { return tokens_; }
  int topk() const { return topk_; }
  MatrixView<std::int32_t> expert() { return {expert_.data(), tokens_, topk_}; }
  MatrixView<const std::int32_t> expert() const { return {expert_.data(), tokens_, topk_}; }
  MatrixView<float> weight() { return {weight_.data(), tokens_, topk_}; }
  MatrixView<const float> weight() const { return {weight_.data(), tokens_, topk_}; }

 private:
  std::int64_t tokens_ = 0;
  int topk_ = 0;
  std::vector<std::int32_t> expert_;
  std::vector<float> weight_;
};

// Contiguous blocks of experts per rank. Where R does not divide E the first E % R ranks hold one more; ranks beyond E
// hold none.
struct ExpertPlacement {
  int experts = 0;
  int ranks = 1;

  int first(Rank rank) const { return rank * (experts / ranks) + (rank < experts % ranks ? rank : experts % ranks); }
  int count(Rank rank) const { return first(rank + 1) - first(rank); }
  Rank owner(ExpertId expert) const {
    const int base = experts / ranks, rest = experts % ranks, large = rest * (base + 1);
    return expert < large ? expert / (base + 1) : rest + (expert - large) / base;
  }
  int local_index(ExpertId expert) const { return expert - first(owner(expert)); }
};

}  // namespace moetax
