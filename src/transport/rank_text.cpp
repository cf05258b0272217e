#include "transport/rank_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

namespace moetax {

std::string format_ranks(std::span<const Rank> ranks) {
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  for (std::size_t first = 0; first < ranks.size();) {
    std::size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += first == 0 ? " " : ", ";
    text += first == last ? fmt::format("{}", ranks[first]) : fmt::format("{}-{}", ranks[first], ranks[last]);
    first = last + 1;
  }
  return text;
}

Error disagreement(std::string_view what, std::span<const Rank> ranks, std::span<const std::string> texts) {
  Error error{ErrorCode::kPeerFailed, fmt::format("ranks disagree on {}: ", what)};
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (std::find(texts.begin(), texts.begin() + static_cast<std::ptrdiff_t>(i), texts[i]) !=
        texts.begin() + static_cast<std::ptrdiff_t>(i)) {
      continue;  // told with an earlier rank
    }
    std::vector<Rank> alike;
    for (std::size_t j = i; j < texts.size(); ++j) {
      if (texts[j] == texts[i]) alike.push_back(ranks[j]);
    }
    if (i > 0 && error.rank == kNoRank) error.rank = ranks[i];
    error.message += fmt::format("{}{} {} {}", i == 0 ? "" : ", ", format_ranks(alike),
                                 alike.size() == 1 ? "has" : "have", texts[i]);
  }
  return error;
}

}  // namespace moetax
