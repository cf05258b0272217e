#include "exchange/layout.h"

#include <fmt/format.h>

#include <algorithm>

namespace moetax {
namespace {

Unexpected bad_choice(const RoutingTable& routing, std::int64_t token, std::int32_t expert, std::size_t experts) {
  const auto chosen = routing.expert().row_span(token);
  const bool known = expert >= 0 && static_cast<std::size_t>(expert) < experts;
  return fail(
      ErrorCode::kBadInput,
      known ? fmt::format("dispatch: token {} chose expert {} twice: [{}]", token, expert, fmt::join(chosen, ", "))
            : fmt::format("dispatch: token {} chose expert {}, there are experts 0 to {}: [{}]", token, expert,
                          experts - 1, fmt::join(chosen, ", ")));
}

}  // namespace

LayoutBuilder::LayoutBuilder(const ExpertPlacement& placement, Rank self)
    : self_(self), target_(static_cast<std::size_t>(placement.ranks)) {
  for (ExpertId e = 0; e < placement.experts; ++e) owner_.push_back(static_cast<std::int16_t>(placement.owner(e)));
  for (Rank r = 0; r <= placement.ranks; ++r) first_expert_.push_back(placement.first(r));
  last_token_.resize(owner_.size());
  total_.resize(owner_.size());
  next_row_.resize(owner_.size());
  incoming_.resize(static_cast<std::size_t>(placement.count(self)));
}

Result<void> LayoutBuilder::count_choices(const RoutingTable& routing, std::span<std::int32_t> count) {
  const std::size_t experts = owner_.size();
  std::fill(count.begin(), count.end(), 0);
  std::fill(last_token_.begin(), last_token_.end(), -1);
  const std::int32_t* chosen = routing.expert().data;
  for (std::int64_t t = 0; t < routing.tokens(); ++t) {
    for (int k = 0; k < routing.topk(); ++k, ++chosen) {
      const auto e = static_cast<std::uint32_t>(*chosen);
      if (e >= experts || last_token_[e] == t) return bad_choice(routing, t, *chosen, experts);
      last_token_[e] = t;
      ++count[e];
    }
  }
  return {};
}

void LayoutBuilder::build(const RoutingTable& routing, std::span<const std::int32_t* const> counts,
                          std::span<const CopyList> lists, DispatchLayout::State& layout) {
  layout.tokens = routing.tokens();
  find_first_rows(counts, layout);
  place_rows(routing, lists, layout);
}

void LayoutBuilder::find_first_rows(std::span<const std::int32_t* const> counts, DispatchLayout::State& layout) {
  const std::size_t experts = owner_.size();
  std::fill(total_.begin(), total_.end(), 0);
  for (Rank r = 0; r < static_cast<Rank>(counts.size()); ++r) {
    if (r == self_) std::copy(total_.begin(), total_.end(), next_row_.begin());
    const std::int32_t* count = counts[static_cast<std::size_t>(r)];
    for (std::size_t e = 0; e < experts; ++e) total_[e] += count[e];
  }
  for (std::size_t r = 0; r + 1 < first_expert_.size(); ++r) {
    std::int32_t row = 0;
    for (int e = first_expert_[r]; e < first_expert_[r + 1]; ++e) {
      next_row_[static_cast<std::size_t>(e)] += row;
      row += total_[static_cast<std::size_t>(e)];
    }
    if (static_cast<Rank>(r) == self_) layout.rows = row;
  }
  const auto mine = total_.begin() + first_expert_[static_cast<std::size_t>(self_)];
  std::copy_n(mine, layout.count.size(), layout.count.begin());
}

void LayoutBuilder::place_rows(const RoutingTable& routing, std::span<const CopyList> lists,
                               DispatchLayout::State& layout) {
  std::fill(target_.begin(), target_.end(), Target{});
  layout.peer_rows = 0;
  const std::int32_t* chosen = routing.expert().data;
  Place* place = layout.place;
  for (std::int64_t t = 0; t < routing.tokens(); ++t) {
    for (int k = 0; k < routing.topk(); ++k, ++chosen, ++place) {
      const auto e = static_cast<std::size_t>(*chosen);
      const auto rank = static_cast<std::size_t>(owner_[e]);
      const std::int32_t row = next_row_[e]++;
      Target& target = target_[rank];
      const bool first = target.token != t;
      *place = {row, owner_[e], first};
      layout.peer_rows += owner_[e] != self_;
      if (first) {
        target.token = t;
        target.first_row = row;
      } else if (owner_[e] != self_ && !lists.empty() && lists[rank].copy) {
        lists[rank].copy[target.num_copies++] = {target.first_row, row};
      }
    }
  }
  for (std::size_t rank = 0; rank < lists.size(); ++rank) {
    if (static_cast<Rank>(rank) != self_ && lists[rank].size) *lists[rank].size = target_[rank].num_copies;
  }
}

void LayoutBuilder::rewind_rows() {
  std::int32_t row = 0;
  const auto first = static_cast<std::size_t>(first_expert_[static_cast<std::size_t>(self_)]);
  for (std::size_t i = 0; i < incoming_.size(); ++i) {
    incoming_[i] = row;
    row += total_[first + i];
  }
}

void LayoutBuilder::skip_rows(const std::int32_t* count) {
  count += first_expert_[static_cast<std::size_t>(self_)];
  for (std::size_t i = 0; i < incoming_.size(); ++i) incoming_[i] += count[i];
}

std::size_t LayoutBuilder::next_rows(std::span<const std::int32_t> choice, std::span<std::int32_t> rows) {
  const int first = first_expert_[static_cast<std::size_t>(self_)];
  std::size_t found = 0;
  for (const std::int32_t expert : choice) {
    const auto local = static_cast<std::size_t>(expert - first);
    if (local < incoming_.size()) rows[found++] = incoming_[local]++;
  }
  return found;
}

}  // namespace moetax
