#include "exchange/far.h"

#include <algorithm>

#include "moetax/route/router.h"

namespace moetax {

std::int64_t FarList::rows_of(Rank peer) const {
  const auto idx = static_cast<std::size_t>(peer);
  return first_row[idx + 1] - first_row[idx];
}

std::int64_t FarList::slots_of(Rank peer) const {
  const auto idx = static_cast<std::size_t>(peer);
  return first_slot[idx + 1] - first_slot[idx];
}

Far::Far(Communicator& comm, const ExchangeOptions& options)
    : comm_(comm),
      nodes_(comm),
      algorithm_(options.algorithm),
      placement_{options.experts, comm.size()},
      self_(comm.rank()),
      topk_(options.topk),
      dtype_(options.dtype),
      hidden_(options.hidden),
      row_bytes_(static_cast<std::size_t>(options.hidden) * size_of(options.dtype)),
      sum_bytes_(options.fp32_sums ? static_cast<std::size_t>(options.hidden) * sizeof(float) : row_bytes_),
      deadline_s_(options.deadline_s) {
  const auto ranks = static_cast<std::size_t>(comm.size());
  offers_.resize(nodes_.far().size() * (static_cast<std::size_t>(options.experts) + ranks));
  messages_.reserve(2 * ranks);
  for (auto* by_rank : {&last_token_, &next_row_, &next_slot_}) by_rank->resize(ranks);
}

Result<std::unique_ptr<Far>> Far::create(Communicator& comm, const ExchangeOptions& options,
                                         std::span<const std::int64_t> max_tokens) {
  std::unique_ptr<Far> far(new Far(comm, options));
  // A row that comes back per choice, at most; a slot and a gate weight per choice in a header.
  const auto choices = static_cast<std::size_t>(options.max_tokens * options.topk);
  MOETAX_ASSIGN(far->returned_, PageBuffer::reserve(choices * far->sum_bytes_));
  const auto most = static_cast<std::size_t>(*std::max_element(max_tokens.begin(), max_tokens.end()));
  far->max_header_bytes_ = most * static_cast<std::size_t>(options.topk) * (sizeof(FarSlot) + sizeof(float));
  MOETAX_TRY(far->set_algorithm(options.algorithm));
  return far;
}

Result<void> Far::set_algorithm(ExchangeAlgorithm algorithm) {
  if (carrier_ && algorithm == algorithm_) return {};
  MOETAX_ASSIGN(carrier_, make_carrier(algorithm, {&comm_, &nodes_, sum_bytes_, max_header_bytes_}));
  algorithm_ = algorithm;
  return {};
}

Rank Far::stop_of(Rank source, Rank destination) const {
  return sums_per_node() ? nodes_.counterpart(source, nodes_.node_of(destination)) : destination;
}

// ---- A dispatch that makes a layout ----

void Far::count_rows(const RoutingTable& routing, std::span<std::int32_t> rows) {
  std::fill(rows.begin(), rows.end(), 0);
  std::fill(last_token_.begin(), last_token_.end(), -1);
  const std::int32_t* chosen = routing.expert().data;
  for (std::int64_t t = 0; t < routing.tokens(); ++t) {
    for (int k = 0; k < topk_; ++k, ++chosen) {
      const Rank owner = placement_.owner(*chosen);
      if (comm_.shares_memory(owner)) continue;
      const auto stop = static_cast<std::size_t>(stop_of(self_, owner));
      if (last_token_[stop] == t) continue;
      last_token_[stop] = t;
      ++rows[stop];
    }
  }
}

void Far::start_offers(std::span<const std::int32_t> mine) {
  messages_.clear();
  std::byte* room = std::as_writable_bytes(std::span(offers_)).data();
  for (const Rank peer : nodes_.far()) {
    messages_.push_back(comm_.receive(peer, {room, mine.size_bytes()}));
    messages_.push_back(comm_.send(peer, std::as_bytes(mine)));
    room += mine.size_bytes();
  }
}

Result<void> Far::finish_offers(Operation operation, Deadline deadline) {
  MOETAX_TRY(comm_.finish(messages_, operation, deadline));
  return {};
}

FarOffer Far::offer_of(Rank far_rank) const {
  const auto far = nodes_.far();
  const auto idx = static_cast<std::size_t>(std::find(far.begin(), far.end(), far_rank) - far.begin());
  const auto experts = static_cast<std::size_t>(placement_.experts);
  const std::int32_t* numbers = offers_.data() + idx * (experts + static_cast<std::size_t>(comm_.size()));
  return {numbers, numbers + experts};
}

void Far::plan(const RoutingTable& routing, std::span<const FarOffer> offers, DispatchLayout::State& layout) {
  size_bundles(offers, layout.far);
  make_room(layout.far);
  list_outgoing(routing, layout);
}

// A slot per choice: how many there are follows from the counts per expert.
void Far::size_bundles(std::span<const FarOffer> offers, FarLayout& far) const {
  const auto ranks = static_cast<std::size_t>(comm_.size());
  far.rows.assign(ranks * ranks, 0);
  far.slots.assign(ranks * ranks, 0);
  for (std::size_t from = 0; from < ranks; ++from) {
    std::copy_n(offers[from].rows, ranks, &far.rows[from * ranks]);
    for (Rank owner = 0; owner < comm_.size(); ++owner) {
      const auto source = static_cast<Rank>(from);
      if (nodes_.node_of(owner) == nodes_.node_of(source)) continue;
      std::int32_t& slots = far.slots[from * ranks + static_cast<std::size_t>(stop_of(source, owner))];
      for (int e = placement_.first(owner); e < placement_.first(owner + 1); ++e) slots += offers[from].count[e];
    }
  }
}

void Far::make_room(FarLayout& far) const {
  const auto ranks = static_cast<std::size_t>(comm_.size()), self = static_cast<std::size_t>(self_);
  const auto lay_out = [&](FarList& list, auto idx_of) {
    list.first_row.assign(1, 0);
    list.first_slot.assign(1, 0);
    for (std::size_t peer = 0; peer < ranks; ++peer) {
      list.first_row.push_back(list.first_row.back() + far.rows[idx_of(peer)]);
      list.first_slot.push_back(list.first_slot.back() + far.slots[idx_of(peer)]);
    }
    const auto rows = static_cast<std::size_t>(list.first_row.back());
    const auto slots = static_cast<std::size_t>(list.first_slot.back());
    list.slot.resize(slots);
    list.weight.resize(slots);
    list.slot_of.resize(rows + 1);
    // Where a peer's rows begin its slots do too: known before the others of its slots are.
    for (std::size_t peer = 0; peer <= ranks; ++peer) {
      list.slot_of[static_cast<std::size_t>(list.first_row[peer])] = list.first_slot[peer];
    }
  };
  lay_out(far.out, [&](std::size_t peer) { return self * ranks + peer; });
  lay_out(far.in, [&](std::size_t peer) { return peer * ranks + self; });
  far.token.resize(static_cast<std::size_t>(far.out.first_row.back()));
  far.choice.resize(static_cast<std::size_t>(far.out.first_slot.back()));
}

void Far::list_outgoing(const RoutingTable& routing, DispatchLayout::State& layout) {
  FarLayout& far = layout.far;
  std::copy_n(far.out.first_row.begin(), next_row_.size(), next_row_.begin());
  std::copy_n(far.out.first_slot.begin(), next_slot_.size(), next_slot_.begin());
  std::fill(last_token_.begin(), last_token_.end(), -1);
  far.destinations = 0;
  for (std::int64_t i = 0; i < layout.tokens * topk_; ++i) {
    Place& place = layout.place[i];
    if (comm_.shares_memory(place.rank)) continue;
    far.destinations += place.first;
    const std::int64_t token = i / topk_;
    const auto stop = static_cast<std::size_t>(stop_of(self_, place.rank));
    const std::int64_t slot = next_slot_[stop]++;
    const bool new_row = last_token_[stop] != token;
    far.out.slot[static_cast<std::size_t>(slot)] = {place.row, place.rank, new_row};
    far.out.weight[static_cast<std::size_t>(slot)] = routing.weight().data[i];
    far.choice[static_cast<std::size_t>(slot)] = i;
    std::int64_t returned = sums_per_node() ? -1 : slot;
    if (new_row) {
      last_token_[stop] = token;
      const std::int64_t row = next_row_[stop]++;
      far.token[static_cast<std::size_t>(row)] = token;
      far.out.slot_of[static_cast<std::size_t>(row)] = slot;
      if (sums_per_node()) returned = row;
    }
    place.row = static_cast<std::int32_t>(returned);
  }
}

// ---- Carriers ----

Result<std::unique_ptr<Carrier>> make_carrier(ExchangeAlgorithm algorithm, const CarrierSetup& setup) {
  switch (algorithm) {
    case ExchangeAlgorithm::kDirect:
      return make_direct(setup);
    case ExchangeAlgorithm::kRing:
      return make_ring(setup);
    case ExchangeAlgorithm::kMesh2d:
      return make_mesh2d(setup);
    case ExchangeAlgorithm::kFlat:
    case ExchangeAlgorithm::kTwoLevel:
      break;
  }
  return make_pairwise(setup);
}

}  // namespace moetax
