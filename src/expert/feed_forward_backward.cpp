// The gradient, an expert at a time. With w the gate weight of a row, d_y the gradient of its weighted output:
//   d_a    = d_y W2                        for a gate weight of one, fp32
//   d_w    = <d_a, a> + <d_y, b2>          equals <d_y, y>, without keeping y
//   d[g|u] = w d_a da/d[g|u],  wa = w a    each rounded once
//   d_x    = d[g|u] W13
//   d_W13 += d[g|u]^T x,  d_W2 += d_y^T wa,  d_b13 += sum d[g|u],  d_b2 += sum w d_y
// Weighting a instead of d_y leaves d_y where it is: the products read the caller's rows.
#include <algorithm>
#include <cassert>
#include <cstring>

#include "expert/feed_forward_impl.h"
#include "expert/ladder.h"
#include "expert/row_loop.h"

namespace moetax {

struct FeedForward::Impl::BackwardCall {
  ConstRows x;
  const std::byte* kept;  // [N, 2I], or null: computed again from x
  ConstRows d_y;
  std::span<const float> w;
  Rows d_x;
  std::span<float> d_gate;
  const FfnGradients& grads;
  bool accumulate;

  float weight(std::int64_t row) const { return w.empty() ? 1.0f : w[row]; }
};

Result<void> FeedForward::Impl::build_backward() {
  const std::int64_t h = shape.hidden, i = shape.inter;
  MOETAX_ASSIGN(d_up, RowGemm::create({.k = 2 * i, .n = h, .in = dtype, .out = dtype, .threads = threads}));
  MOETAX_ASSIGN(d_down, RowGemm::create({.k = h, .n = i, .in = dtype, .out = DType::kFp32, .threads = threads}));
  MOETAX_ASSIGN(grad_w13, GradGemm::create(2 * i, h, dtype, threads));
  MOETAX_ASSIGN(grad_w2, GradGemm::create(h, i, dtype, threads));
  MOETAX_ASSIGN(turn13, WeightReorder::create(transposed(up->weights()), d_up->weights(), threads));
  MOETAX_ASSIGN(turn2, WeightReorder::create(transposed(down->weights()), d_down->weights(), threads));
  const std::size_t bytes13 = (d_up->weights().get_size() + 4095) / 4096 * 4096;
  MOETAX_ASSIGN(turned, PageBuffer::reserve(bytes13 + d_down->weights().get_size()));
  MOETAX_ASSIGN(turned13, bind_matrix(d_up->weights(), turned.data()));
  MOETAX_ASSIGN(turned2, bind_matrix(d_down->weights(), turned.data() + bytes13));
  for (const dnnl::memory& matrix : w13) {
    MOETAX_ASSIGN(dnnl::memory view, bind_matrix(transposed(up->weights()), matrix.get_data_handle()));
    w13_turned_view.push_back(std::move(view));
  }
  for (const dnnl::memory& matrix : w2) {
    MOETAX_ASSIGN(dnnl::memory view, bind_matrix(transposed(down->weights()), matrix.get_data_handle()));
    w2_turned_view.push_back(std::move(view));
  }
  return {};
}

void FeedForward::backward(const ExpertRows& in, FfnSaved* saved, ConstRows d_y, std::span<const float> w, Rows d_x,
                           std::span<float> d_gate, const FfnGradients& grads, bool accumulate) {
  Impl& impl = *impl_;
  assert(static_cast<int>(in.count.size()) == impl.shape.experts && d_y.rows == in.rows.rows);
  const bool kept = saved && saved->state().kept;
  const Impl::BackwardCall call{in.rows,   kept ? saved->state().gate_up.data() : nullptr, d_y, w, d_x, d_gate, grads,
                                accumulate};
  std::int64_t first = 0;
  for (int e = 0; e < impl.shape.experts; ++e) {
    impl.backward_expert({e, first, in.count[e]}, call);
    first += in.count[e];
  }
  assert(first == in.rows.rows);
}

void FeedForward::Impl::backward_expert(const RowRange& range, const BackwardCall& call) {
  if (!call.accumulate) clear_gradients(range, call.grads);
  if (range.rows == 0) return;
  turn13.run(w13_turned_view[range.expert], turned13);
  turn2.run(w2_turned_view[range.expert], turned2);
  for (std::int64_t begin = 0; begin < range.rows; begin += kMaxGradRows) {
    const RowRange chunk{range.expert, range.begin + begin, std::min(kMaxGradRows, range.rows - begin)};
    const Tiles tiles(chunk.rows, kMaxTileRows);
    for (std::int64_t t = 0; t < tiles.count(); ++t) {
      backward_tile({chunk.expert, chunk.begin + tiles.begin(t), tiles.size(t)}, tiles.begin(t), call);
    }
    weight_gradients(chunk, call, call.accumulate || begin > 0);
    if (shape.bias) bias_gradients(chunk, call);
  }
}

// Zeros, where no product is going to overwrite.
void FeedForward::Impl::clear_gradients(const RowRange& range, const FfnGradients& grads) const {
  const auto clear = [&](std::span<float> all, std::int64_t size) {
    std::fill_n(all.begin() + range.expert * size, size, 0.0f);
  };
  if (shape.bias) {
    clear(grads.d_b13, up_width());
    clear(grads.d_b2, shape.hidden);
  }
  if (range.rows > 0) return;
  clear(grads.d_w13, up_width() * shape.hidden);
  clear(grads.d_w2, shape.hidden * shape.inter);
}

// d_x and d_gate of one tile; leaves d[g|u] and wa at row `at` of the chunk for the weight gradients.
void FeedForward::Impl::backward_tile(const RowRange& tile, std::int64_t at, const BackwardCall& call) {
  const std::int64_t padded = round_up_to_rung(tile.rows);
  const std::int64_t up_bytes = up_width() * size_of(dtype), a_bytes = shape.inter * size_of(dtype);
  const std::byte* kept = call.kept ? call.kept + tile.begin * up_bytes : nullptr;
  if (!kept) {
    const std::byte* x = padded_rows(call.x.slice(tile.begin, tile.rows), padded, x_pad, threads);
    up->run(padded, x, w13[tile.expert], bias13(tile.expert), gate_up.data());
    kept = gate_up.data();
  }
  const ConstRows d_y = call.d_y.slice(tile.begin, tile.rows);
  d_down->run(padded, padded_rows(d_y, padded, d_y_pad, threads), turned2, nullptr, d_a.data());
  std::byte* d_gate_up_rows = d_gate_up.data() + at * up_bytes;
  for_rows(tile.rows, threads, 4, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      float gate = activate_backward(activation(), kept + i * up_bytes, d_a.as<float>() + i * shape.inter,
                                     call.weight(tile.begin + i), d_gate_up_rows + i * up_bytes,
                                     weighted_a.data() + (at + i) * a_bytes);
      if (shape.bias) gate += dot(d_y.row(i), dtype, shape.hidden, bias2(tile.expert));
      if (!call.d_gate.empty()) call.d_gate[tile.begin + i] = gate;
    }
  });
  std::byte* d_x = padded == tile.rows ? call.d_x.row(tile.begin) : d_x_pad.data();
  d_up->run(padded, d_gate_up_rows, turned13, nullptr, d_x);
  if (d_x == d_x_pad.data()) copy_dense_rows(d_x, call.d_x.row(tile.begin), tile.rows, call.d_x.row_bytes(), threads);
}

void FeedForward::Impl::weight_gradients(const RowRange& chunk, const BackwardCall& call, bool accumulate) {
  const std::int64_t padded = GradGemm::round_up_rows(chunk.rows);
  const auto zero_padding = [&](const std::byte* rows, std::int64_t cols) {
    const std::size_t row_bytes = cols * size_of(dtype);
    std::memset(const_cast<std::byte*>(rows) + chunk.rows * row_bytes, 0, (padded - chunk.rows) * row_bytes);
  };
  const std::byte* x = padded_rows(call.x.slice(chunk.begin, chunk.rows), padded, x_pad, threads);
  const std::byte* d_y = padded_rows(call.d_y.slice(chunk.begin, chunk.rows), padded, d_y_pad, threads);
  if (padded != chunk.rows) {
    zero_padding(x_pad.data(), shape.hidden);
    zero_padding(d_y_pad.data(), shape.hidden);
    zero_padding(d_gate_up.data(), up_width());
    zero_padding(weighted_a.data(), shape.inter);
  }
  float* d_w13 = call.grads.d_w13.data() + chunk.expert * up_width() * shape.hidden;
  float* d_w2 = call.grads.d_w2.data() + chunk.expert * shape.hidden * shape.inter;
  grad_w13->run(padded, d_gate_up.data(), x, d_w13, accumulate);
  grad_w2->run(padded, d_y, weighted_a.data(), d_w2, accumulate);
}

// Threads share columns, so that each sum runs over the rows in order.
void FeedForward::Impl::bias_gradients(const RowRange& chunk, const BackwardCall& call) {
  const auto add_columns = [&](std::int64_t cols, float* sums, auto row_of, auto scale_of) {
    for_rows(cols, threads, 64, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = 0; i < chunk.rows; ++i) {
        add_scaled(row_of(i) + begin * size_of(dtype), dtype, end - begin, scale_of(i), sums + begin);
      }
    });
  };
  add_columns(
      up_width(), call.grads.d_b13.data() + chunk.expert * up_width(),
      [&](std::int64_t i) { return d_gate_up.data() + i * up_width() * size_of(dtype); },
      [](std::int64_t) { return 1.0f; });
  add_columns(
      shape.hidden, call.grads.d_b2.data() + chunk.expert * shape.hidden,
      [&](std::int64_t i) { return call.d_y.row(chunk.begin + i); },
      [&](std::int64_t i) { return call.weight(chunk.begin + i); });
}

}  // namespace moetax
