// Dispatch and its likes: rows go to the ranks of their experts.
#include <algorithm>
#include <array>
#include <utility>

#include "exchange/impl.h"
#include "moetax/base/parallel.h"
#include "moetax/route/router.h"

namespace moetax {
namespace {

constexpr std::int64_t kTokenGrain = 16;

}  // namespace

Result<Dispatched> Exchange::Impl::send(Call& call, std::shared_ptr<State> layout, std::shared_ptr<Buffers> buffers,
                                        const Cargo& cargo) {
  // Two-level, a rank also writes rows that crossed into its node mates' memory.
  const bool hands_on = far && far->sums_per_node();
  const auto inside_node = [&] {
    if (cargo.pushes) {
      // Peers come first: they can use the rows while this rank still packs its own.
      push_rows(call, *layout, *buffers, cargo.rows);
      if (cargo.weights) push_weights(*layout, *buffers, *cargo.weights);
      if (!hands_on) post_near(Channel::kRows, call.number());
    } else {
      count_offered(call, *layout);
    }
    pack_rows(call, *layout, *buffers, cargo.rows);
  };
  if (far) {
    MOETAX_TRY(send_far(call, *layout, *buffers, cargo, inside_node));
  } else {
    inside_node();
  }
  if (hands_on) post_near(Channel::kRows, call.number());
  MOETAX_TRY(await(call, Channel::kRows, hands_on ? far->nodes().near() : pushers, Part::kWire));
  if (cargo.new_layout) take_copy_lists(*layout);
  copy_rows(call, *layout, *buffers);
  if (cargo.new_layout) fetch_rows(call, *layout, *buffers);
  call.finish();

  Dispatched result;
  result.batch.rows = {buffers->rows.local(), options.dtype, layout->rows, options.hidden};
  result.batch.out = {buffers->out.local(), options.dtype, layout->rows, options.hidden};
  result.batch.count = layout->count;
  if (cargo.weights) {
    result.batch.weight = {reinterpret_cast<const float*>(buffers->gate.local()),
                           static_cast<std::size_t>(layout->rows)};
  }
  result.handle.layout_ = DispatchLayout(std::move(layout));
  result.handle.buffers_ = std::move(buffers);
  return result;
}

void Exchange::Impl::lay_open(ConstRows rows, const RoutingTable& routing) const {
  const Offer& mine = offer(self);
  std::copy_n(routing.expert().data, rows.rows * options.topk, mine.choice);
  std::copy_n(rows.data, rows.bytes(), mine.rows);
}

void Exchange::Impl::count_offered(Call& call, const State& layout) const {
  std::int64_t sent = 0;
  for (const Place& place : std::span(layout.place, static_cast<std::size_t>(layout.tokens * options.topk))) {
    sent += place.first && place.rank != self && is_near(place.rank);
  }
  const auto bytes = static_cast<std::int64_t>(row_bytes);
  call.moved({.logical = sent * bytes, .physical = sent * bytes});
}

// Streams the rows: a normal store first brings the line over from the peer's cache, where its last reader left it.
void Exchange::Impl::push_rows(Call& call, const State& layout, const Buffers& buffers, ConstRows rows) const {
  if (comm->size() == 1) return;
  Call::Wire wire(call, "push rows");
  const int topk = options.topk;
  parallel_for(layout.tokens, options.threads, kTokenGrain, [&](std::int64_t begin, std::int64_t end) {
    std::array<std::byte*, kMaxTopK> to;
    std::int64_t pushed = 0;
    for (std::int64_t t = begin; t < end; ++t) {
      std::size_t targets = 0;
      for (const Place& place : std::span(&layout.place[t * topk], static_cast<std::size_t>(topk))) {
        if (!place.first || place.rank == self || !is_near(place.rank)) continue;
        to[targets++] = buffers.rows.at(place.rank) + static_cast<std::size_t>(place.row) * row_bytes;
      }
      if (targets == 0) continue;
      copy_row(rows.row(t), row_bytes, {to.data(), targets}, Store::kStreaming,
               t + 1 < end ? rows.row(t + 1) : nullptr);
      pushed += static_cast<std::int64_t>(targets);
    }
    finish_streaming();
    const auto bytes = static_cast<std::int64_t>(row_bytes);
    call.moved({.logical = pushed * bytes, .physical = pushed * bytes});
  });
}

void Exchange::Impl::push_weights(const State& layout, const Buffers& buffers, const RoutingTable& routing) const {
  const float* weight = routing.weight().data;
  for (std::int64_t i = 0; i < layout.tokens * options.topk; ++i) {
    const Place& place = layout.place[i];
    if (!is_near(place.rank)) continue;
    reinterpret_cast<float*>(buffers.gate.at(place.rank))[place.row] = weight[i];
  }
}

void Exchange::Impl::pack_rows(Call& call, const State& layout, const Buffers& buffers, ConstRows rows) const {
  Call::Pack pack(call, "pack rows");
  const int topk = options.topk;
  const Store store = store_for(layout.tokens * topk);
  std::byte* own_rows = buffers.rows.local();
  parallel_for(layout.tokens, options.threads, kTokenGrain, [&](std::int64_t begin, std::int64_t end) {
    std::array<std::byte*, kMaxTopK> to;
    std::int64_t packed = 0;
    for (std::int64_t t = begin; t < end; ++t) {
      std::size_t targets = 0;
      for (const Place& place : std::span(&layout.place[t * topk], static_cast<std::size_t>(topk))) {
        if (place.rank == self) to[targets++] = own_rows + static_cast<std::size_t>(place.row) * row_bytes;
      }
      if (targets == 0) continue;
      copy_row(rows.row(t), row_bytes, {to.data(), targets}, store, t + 1 < end ? rows.row(t + 1) : nullptr);
      ++packed;
    }
    if (store == Store::kStreaming) finish_streaming();
    call.moved({.logical = packed * static_cast<std::int64_t>(row_bytes)});
  });
}

void Exchange::Impl::take_copy_lists(State& layout) const {
  layout.num_copies = 0;
  for (const Rank from : pushers) {
    if (from == self) continue;
    const CopyList list = copy_list(from, self);
    std::copy_n(list.copy, *list.size, &layout.copy[layout.num_copies]);
    layout.num_copies += *list.size;
  }
}

void Exchange::Impl::copy_rows(Call& call, const State& layout, const Buffers& buffers) const {
  if (layout.num_copies == 0) return;
  Call::Pack pack(call, "copy rows");
  const Store store = store_for(layout.rows);
  std::byte* rows = buffers.rows.local();
  const auto row = [&](std::int32_t idx) { return rows + static_cast<std::size_t>(idx) * row_bytes; };
  parallel_for(layout.num_copies, options.threads, kTokenGrain, [&](std::int64_t begin, std::int64_t end) {
    std::array<std::byte*, kMaxTopK> to;
    for (std::int64_t i = begin; i < end;) {
      const std::int32_t from = layout.copy[i].from;
      std::size_t targets = 0;
      for (; i < end && layout.copy[i].from == from; ++i) to[targets++] = row(layout.copy[i].to);
      copy_row(row(from), row_bytes, {to.data(), targets}, store, i < end ? row(layout.copy[i].from) : nullptr);
    }
    if (store == Store::kStreaming) finish_streaming();
  });
}

// Offered rows go to all their places here in one pass. When the layout is used again they are pushed, so the copies of
// the first place are noted too.
void Exchange::Impl::fetch_rows(Call& call, State& layout, const Buffers& buffers) {
  if (pushers.size() == (far ? far->nodes().near().size() : all_counts[0].size()) || comm->size() == 1) return;
  Call::Wire wire(call, "fetch rows");
  std::array<std::int32_t, kMaxTopK> row;
  std::array<std::byte*, kMaxTopK> to;
  builder.rewind_rows();
  for (const Rank from : comm->everyone()) {
    const Offer& theirs = offer(from);
    const Announcement announcement = from == self ? Announcement{} : announced(call, from);
    if (from == self || announcement.pushes || !is_near(from)) {
      builder.skip_rows(all_counts[sends % 2][static_cast<std::size_t>(from)]);
      continue;
    }
    const std::int32_t* choice = theirs.choice;
    for (std::int64_t t = 0; t < announcement.tokens; ++t, choice += options.topk) {
      const std::size_t places = builder.next_rows({choice, static_cast<std::size_t>(options.topk)}, row);
      if (places == 0) continue;
      for (std::size_t i = 0; i < places; ++i) {
        to[i] = buffers.rows.local() + static_cast<std::size_t>(row[i]) * row_bytes;
        if (i > 0) layout.copy[layout.num_copies++] = {row[0], row[i]};
      }
      const std::byte* token = theirs.rows + static_cast<std::size_t>(t) * row_bytes;
      copy_row(token, row_bytes, {to.data(), places}, Store::kCached, token + row_bytes);
    }
  }
}

}  // namespace moetax
