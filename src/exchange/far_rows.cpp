// What crosses between nodes, row by row: the two loads of Far.
#include <algorithm>
#include <array>
#include <cstring>

#include "exchange/far.h"
#include "moetax/route/router.h"
#include "moetax/wire/rows.h"

namespace moetax {
namespace {

std::size_t at(std::int64_t idx) {
  return static_cast<std::size_t>(idx);
}

}  // namespace

// Rows and slots of a bundle, for either direction.
class FarLoad : public Load {
 protected:
  FarLoad(FarLayout& far, int ranks, std::size_t row_bytes) : far_(far), ranks_(ranks), row_bytes_(row_bytes) {}
  std::int64_t rows(Rank source, Rank stop) const { return far_.rows[at(source * ranks_ + stop)]; }
  std::int64_t slots(Rank source, Rank stop) const { return far_.slots[at(source * ranks_ + stop)]; }
  std::span<FarSlot> slots_of(FarList& list, Rank peer) const {
    return std::span(list.slot).subspan(at(list.first_slot[at(peer)]), at(list.slots_of(peer)));
  }
  std::span<float> weights_of(FarList& list, Rank peer) const {
    return std::span(list.weight).subspan(at(list.first_slot[at(peer)]), at(list.slots_of(peer)));
  }
  std::span<const FarSlot> slots_of_row(const FarList& list, std::int64_t row) const {
    const std::int64_t first = list.slot_of[at(row)], end = list.slot_of[at(row + 1)];
    return std::span(list.slot).subspan(at(first), at(end - first));
  }
  std::byte* row_at(const Window& window, const FarSlot& slot) const {
    return window.at(slot.rank) + static_cast<std::size_t>(slot.row) * row_bytes_;
  }

  FarLayout& far_;
  int ranks_;
  std::size_t row_bytes_;
};

// From the source to the stops. Header: slots, if they are not known there yet; then weights, if they travel.
class DispatchLoad final : public FarLoad {
 public:
  DispatchLoad(const Far& owner, FarLayout& far, ConstRows tokens, bool fresh, bool weights, bool to_gate,
               const NodeRows& node)
      : FarLoad(far, owner.comm_.size(), owner.row_bytes_),
        self_(owner.self_),
        tokens_(tokens),
        fresh_(fresh),
        weights_(weights),
        to_gate_(to_gate),
        node_(node) {}

  BundleSize size(Rank from, Rank to) const override {
    const std::int64_t per_slot = (fresh_ ? sizeof(FarSlot) : 0) + (weights_ ? sizeof(float) : 0);
    return {slots(from, to) * per_slot, rows(from, to)};
  }
  std::size_t row_bytes() const override { return row_bytes_; }
  void pack_header(Rank to, std::byte* out) const override {
    if (fresh_) out = put(slots_of(far_.out, to), out);
    if (weights_) put(weights_of(far_.out, to), out);
  }
  void pack_rows(Rank to, std::int64_t first, std::int64_t count, std::byte* out) const override {
    const std::int64_t* token = &far_.token[at(far_.out.first_row[at(to)] + first)];
    for (std::int64_t i = 0; i < count; ++i, out += row_bytes_) {
      copy_row(tokens_.row(token[i]), row_bytes_, {&out, 1}, Store::kCached,
               i + 1 < count ? tokens_.row(token[i + 1]) : nullptr);
    }
  }
  void unpack_header(Rank from, const std::byte* in) override {
    if (fresh_) {
      in = take(slots_of(far_.in, from), in);
      std::int64_t row = far_.in.first_row[at(from)];
      for (std::int64_t slot = far_.in.first_slot[at(from)]; slot < far_.in.first_slot[at(from) + 1]; ++slot) {
        if (far_.in.slot[at(slot)].new_row) far_.in.slot_of[at(row++)] = slot;
      }
    }
    if (!weights_) return;
    const std::span<float> weights = weights_of(far_.in, from);
    take(weights, in);
    if (!to_gate_) return;
    const std::span<const FarSlot> slots = slots_of(far_.in, from);
    for (std::size_t i = 0; i < slots.size(); ++i) {
      reinterpret_cast<float*>(node_.gate->at(slots[i].rank))[slots[i].row] = weights[i];
    }
  }
  void unpack_rows(Rank from, std::int64_t first, std::int64_t count, const std::byte* in) override {
    std::array<std::byte*, kMaxTopK> to;
    const std::int64_t begin = far_.in.first_row[at(from)] + first;
    for (std::int64_t row = begin; row < begin + count; ++row, in += row_bytes_) {
      std::size_t targets = 0;
      for (const FarSlot& slot : slots_of_row(far_.in, row)) {
        to[targets++] = row_at(*node_.rows, slot);
        handed_on_ += slot.rank != self_;
      }
      copy_row(in, row_bytes_, {to.data(), targets}, Store::kCached, in + row_bytes_);
    }
  }
  std::int64_t handed_on() const { return handed_on_; }

 private:
  template <class T>
  static std::byte* put(std::span<T> values, std::byte* out) {
    if (!values.empty()) std::memcpy(out, values.data(), values.size_bytes());
    return out + values.size_bytes();
  }
  template <class T>
  static const std::byte* take(std::span<T> values, const std::byte* in) {
    if (!values.empty()) std::memcpy(values.data(), in, values.size_bytes());
    return in + values.size_bytes();
  }

  Rank self_;
  ConstRows tokens_;
  bool fresh_, weights_, to_gate_;
  NodeRows node_;
  std::int64_t handed_on_ = 0;
};

// From the stops back to the sources. Header: the gate gradient of every slot, if it travels. Rows: one per slot, or,
// two-level, one sum per row that crossed.
class CombineLoad final : public FarLoad {
 public:
  CombineLoad(Far& owner, FarLayout& far, bool weighted, const NodeRows& node)
      : FarLoad(far, owner.comm_.size(), owner.row_bytes_), owner_(owner), weighted_(weighted), node_(node) {
    ones_.fill(1.0f);
  }

  // Bundles go the other way: `from` was the stop, `to` the source.
  BundleSize size(Rank from, Rank to) const override {
    const std::int64_t num_slots = slots(to, from);
    return {weighted_ ? 0 : num_slots * static_cast<std::int64_t>(sizeof(float)),
            owner_.sums_per_node() ? rows(to, from) : num_slots};
  }
  std::size_t row_bytes() const override { return owner_.returned_bytes(); }
  void pack_header(Rank to, std::byte* out) const override {
    for (const FarSlot& slot : slots_of(far_.in, to)) {
      std::memcpy(out, reinterpret_cast<const float*>(node_.gate->at(slot.rank)) + slot.row, sizeof(float));
      out += sizeof(float);
    }
  }
  void pack_rows(Rank to, std::int64_t first, std::int64_t count, std::byte* out) const override {
    if (owner_.sums_per_node()) return pack_sums(to, first, count, out);
    const std::span<const FarSlot> slots = slots_of(far_.in, to).subspan(at(first), at(count));
    for (std::size_t i = 0; i < slots.size(); ++i, out += row_bytes_) {
      copy_row(row_at(*node_.out, slots[i]), row_bytes_, {&out, 1}, Store::kCached,
               i + 1 < slots.size() ? row_at(*node_.out, slots[i + 1]) : nullptr);
    }
  }
  void unpack_header(Rank from, const std::byte* in) override {
    std::memcpy(owner_.returned_gate_.data() + far_.out.first_slot[at(from)], in,
                at(far_.out.slots_of(from)) * sizeof(float));
  }
  void unpack_rows(Rank from, std::int64_t first, std::int64_t count, const std::byte* in) override {
    const auto& starts = owner_.sums_per_node() ? far_.out.first_row : far_.out.first_slot;
    std::byte* to = owner_.returned_.data() + at(starts[at(from)] + first) * row_bytes();
    std::memcpy(to, in, at(count) * row_bytes());
  }
  std::int64_t handed_on() const { return handed_on_; }

 private:
  // The products are added in top-k order, in fp32, and rounded once to the type of the rows, unless they go as fp32.
  void pack_sums(Rank to, std::int64_t first, std::int64_t count, std::byte* out) const {
    std::array<const std::byte*, kMaxTopK> terms;
    const std::int64_t begin = far_.in.first_row[at(to)] + first;
    for (std::int64_t row = begin; row < begin + count; ++row, out += row_bytes()) {
      const std::span<const FarSlot> slots = slots_of_row(far_.in, row);
      for (std::size_t i = 0; i < slots.size(); ++i) {
        terms[i] = row_at(*node_.out, slots[i]);
        handed_on_ += slots[i].rank != owner_.self_;
      }
      const float* weight = weighted_ ? &far_.in.weight[at(far_.in.slot_of[at(row)])] : ones_.data();
      const RowTerms sum{{terms.data(), slots.size()}, {}, owner_.hidden_};
      if (owner_.returns_wide()) {
        sum_row(owner_.dtype_, sum, {weight, slots.size()}, reinterpret_cast<float*>(out), Store::kCached);
      } else {
        weighted_sum_row(owner_.dtype_, sum, {weight, slots.size()}, nullptr, out, Store::kCached);
      }
    }
  }

  Far& owner_;
  bool weighted_;
  NodeRows node_;
  std::array<float, kMaxTopK> ones_;
  mutable std::int64_t handed_on_ = 0;
};

Result<Far::Moved> Far::dispatch(DispatchLayout::State& layout, ConstRows tokens, const RoutingTable* weights,
                                 bool fresh, const NodeRows& node, Operation operation, FunctionRef<void()> meanwhile) {
  FarLayout& far = layout.far;
  if (weights) {
    for (std::size_t i = 0; i < far.choice.size(); ++i) far.out.weight[i] = weights->weight().data[far.choice[i]];
  }
  const bool travel = weights || (fresh && sums_per_node());
  DispatchLoad load(*this, far, tokens, fresh, travel, weights != nullptr, node);
  MOETAX_ASSIGN(const Carried carried, carrier_->carry(load, operation, deadline_s_, meanwhile));
  return Moved{carried, load.handed_on()};
}

Result<Far::Moved> Far::combine(DispatchLayout::State& layout, bool weighted, const NodeRows& node,
                                Operation operation) {
  if (!weighted) returned_gate_.resize(layout.far.choice.size());
  CombineLoad load(*this, layout.far, weighted, node);
  MOETAX_ASSIGN(const Carried carried, carrier_->carry(load, operation, deadline_s_, [] {}));
  return Moved{carried, load.handed_on()};
}

}  // namespace moetax
