// Combine and its mirror: rows come back from the ranks of the experts and are summed.
#include <array>

#include "exchange/impl.h"
#include "moetax/base/parallel.h"
#include "moetax/route/router.h"

namespace moetax {
namespace {

constexpr std::int64_t kTokenGrain = 16;

// The rows of a token, and those of the next one that are to be prefetched.
struct TokenRows {
  std::array<const std::byte*, kMaxTopK> row;
  std::array<float, kMaxTopK> weight;  // only where sums of a node are among the rows
  std::size_t num_rows = 0;
  std::uint64_t wide = 0;  // as in RowTerms
  std::array<const std::byte*, kMaxTopK> far_row;
  std::size_t num_far = 0;
};

// Finds the K rows of one token after another, one token ahead so that they can be prefetched: peers' rows always, own
// rows only when they are too many to be still in the cache. Counts the rows it finds.
class RowWalk {
 public:
  RowWalk(const Exchange::Impl& x, const DispatchLayout::State& layout, const Window& out)
      : x_(x),
        layout_(layout),
        out_(out),
        topk_(static_cast<std::size_t>(x.options.topk)),
        own_rows_far_(x.store_for(layout.rows) == Store::kStreaming),
        sums_(x_.far && x_.far->sums_per_node()) {}

  // Calls body(token, terms, weights) for tokens [begin, end) in order. `gate` [T, K] may be empty: all weights 1.
  template <class Body>
  void over(std::int64_t begin, std::int64_t end, MatrixView<const float> gate, Body body) {
    gate_ = gate;
    TokenRows tokens[2];
    locate(begin, tokens[0]);
    for (std::int64_t t = begin; t < end; ++t) {
      const TokenRows& now = tokens[(t - begin) % 2];
      TokenRows& next = tokens[(t - begin + 1) % 2];
      next.num_far = 0;
      if (t + 1 < end) locate(t + 1, next);
      const bool own_weights = gate_.data && !sums_;
      body(t,
           RowTerms{{now.row.data(), now.num_rows}, {next.far_row.data(), next.num_far}, x_.options.hidden, now.wide},
           own_weights ? gate_.row_span(t) : std::span<const float>(now.weight.data(), now.num_rows));
    }
  }

  MovedBytes moved() const {
    const auto bytes = static_cast<std::int64_t>(x_.row_bytes);
    return {all_ * bytes, from_peers_ * bytes, 0};
  }

 private:
  void locate(std::int64_t token, TokenRows& rows) {
    const Place* place = &layout_.place[token * static_cast<std::int64_t>(topk_)];
    rows.num_far = rows.num_rows = 0;
    rows.wide = 0;
    for (std::size_t k = 0; k < topk_; ++k, ++place) {
      const std::byte*& row = rows.row[rows.num_rows];
      if (!x_.is_near(place->rank)) {
        if (place->row < 0) continue;  // in the sum of an earlier choice
        row = x_.far->returned(place->row);
        if (sums_) rows.weight[rows.num_rows] = 1.0f;
        if (sums_ && x_.far->returns_wide()) rows.wide |= std::uint64_t{1} << rows.num_rows;
        rows.far_row[rows.num_far++] = row;
        ++rows.num_rows;
        continue;
      }
      const bool from_peer = place->rank != x_.self;
      row = out_.at(place->rank) + static_cast<std::size_t>(place->row) * x_.row_bytes;
      if (from_peer || own_rows_far_) rows.far_row[rows.num_far++] = row;
      if (sums_) rows.weight[rows.num_rows] = gate_.data ? gate_(token, static_cast<std::int64_t>(k)) : 1.0f;
      from_peers_ += from_peer;
      ++rows.num_rows;
    }
    all_ += static_cast<std::int64_t>(topk_);
  }

  const Exchange::Impl& x_;
  const DispatchLayout::State& layout_;
  const Window& out_;
  std::size_t topk_;
  bool own_rows_far_;
  bool sums_;
  MatrixView<const float> gate_;
  std::int64_t all_ = 0, from_peers_ = 0;
};

// One pass reads own rows and peers' rows: it is a transfer as soon as there are any of the latter.
template <class Body>
void pull(Call& call, const DispatchLayout::State& layout, Body body) {
  if (layout.peer_rows > 0) {
    Call::Wire wire(call, "pull rows");
    body();
  } else {
    Call::Pack pack(call, "sum rows");
    body();
  }
}

}  // namespace

void Exchange::Impl::pull_weighted(Call& call, const State& layout, const Buffers& buffers, const RoutingTable& routing,
                                   ConstRows addend, Rows out) const {
  const Store store = store_for(layout.tokens);
  pull(call, layout, [&] {
    parallel_for(layout.tokens, options.threads, kTokenGrain, [&](std::int64_t begin, std::int64_t end) {
      RowWalk walk(*this, layout, buffers.out);
      walk.over(begin, end, routing.weight(), [&](std::int64_t t, const RowTerms& terms, std::span<const float> gate) {
        weighted_sum_row(options.dtype, terms, gate, addend.data ? addend.row(t) : nullptr, out.row(t), store);
      });
      if (store == Store::kStreaming) finish_streaming();
      call.moved(walk.moved());
    });
  });
}

void Exchange::Impl::pull_gradients(Call& call, const State& layout, const Buffers& buffers, MatrixView<float> d_tokens,
                                    MatrixView<float> d_weight) const {
  const Store store = store_for(layout.tokens);
  pull(call, layout, [&] {
    parallel_for(layout.tokens, options.threads, kTokenGrain, [&](std::int64_t begin, std::int64_t end) {
      RowWalk walk(*this, layout, buffers.out);
      walk.over(begin, end, {}, [&](std::int64_t t, const RowTerms& terms, std::span<const float>) {
        sum_row(options.dtype, terms, {}, d_tokens.row(t), store);
        const Place* place = &layout.place[t * options.topk];
        for (float& d : d_weight.row_span(t)) {
          if (is_near(place->rank)) d = reinterpret_cast<const float*>(buffers.gate.at(place->rank))[place->row];
          ++place;
        }
      });
      if (store == Store::kStreaming) finish_streaming();
      call.moved(walk.moved());
    });
  });
}

}  // namespace moetax
