// The router's product. The matrix is small, so the backward keeps an fp32 copy of it, packed the other way round, and
// stays in fp32: the logits' gradients are sums that bf16 would spoil.
#include <fmt/format.h>

#include <cassert>
#include <cstring>

#include "expert/feed_forward_impl.h"
#include "expert/ladder.h"
#include "expert/row_loop.h"

namespace moetax {

struct Linear::Impl {
  std::int64_t k = 0, n = 0;  // in and out features
  DType dtype = DType::kBf16;
  int threads = 1;
  std::unique_ptr<RowGemm> product, d_product;  // y = x W^T,  d_x = d_y W
  std::unique_ptr<GradGemm> gradient;           // d_W = d_y^T x
  WeightReorder pack, turn;
  PageBuffer packed, turned;
  dnnl::memory weights, weights_view, turned_weights;
  PageBuffer x_pad, y_pad;               // forward: of the dtype, fp32
  PageBuffer wide_x, wide_d_y, d_x_pad;  // backward: fp32

  Result<void> build();
  Result<void> reserve();
};

Linear::Linear(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Linear::~Linear() = default;
Linear::Linear(Linear&&) noexcept = default;
Linear& Linear::operator=(Linear&&) noexcept = default;

Result<Linear> Linear::create(std::int64_t in_features, std::int64_t out_features, DType dtype, int threads) {
  if (in_features < 1 || out_features < 1 || threads < 1) {
    return fail(ErrorCode::kUsage, fmt::format("linear: {} -> {} features on {} threads, expected 1 or more of each",
                                               in_features, out_features, threads));
  }
  auto impl = std::make_unique<Impl>();
  impl->k = in_features;
  impl->n = out_features;
  impl->dtype = dtype;
  impl->threads = threads;
  MOETAX_TRY(impl->build());
  MOETAX_TRY(impl->reserve());
  return Linear(std::move(impl));
}

Result<void> Linear::Impl::build() {
  MOETAX_ASSIGN(product, RowGemm::create({.k = k, .n = n, .in = dtype, .out = DType::kFp32, .threads = threads}));
  MOETAX_ASSIGN(d_product,
                RowGemm::create({.k = n, .n = k, .in = DType::kFp32, .out = DType::kFp32, .threads = threads}));
  MOETAX_ASSIGN(gradient, GradGemm::create(n, k, DType::kFp32, threads));
  MOETAX_ASSIGN(pack, WeightReorder::create(plain_weights(k, n), product->weights(), threads));
  MOETAX_ASSIGN(turn, WeightReorder::create(transposed(product->weights()), d_product->weights(), threads));
  return {};
}

Result<void> Linear::Impl::reserve() {
  MOETAX_ASSIGN(packed, PageBuffer::reserve(product->weights().get_size()));
  MOETAX_ASSIGN(turned, PageBuffer::reserve(d_product->weights().get_size()));
  MOETAX_ASSIGN(weights, bind_matrix(product->weights(), packed.data()));
  MOETAX_ASSIGN(weights_view, bind_matrix(transposed(product->weights()), packed.data()));
  MOETAX_ASSIGN(turned_weights, bind_matrix(d_product->weights(), turned.data()));
  MOETAX_ASSIGN(x_pad, PageBuffer::reserve(kMaxTileRows * k * size_of(dtype)));
  MOETAX_ASSIGN(y_pad, PageBuffer::reserve(kMaxTileRows * n * sizeof(float)));
  MOETAX_ASSIGN(wide_x, PageBuffer::reserve(kMaxGradRows * k * sizeof(float)));
  MOETAX_ASSIGN(wide_d_y, PageBuffer::reserve(kMaxGradRows * n * sizeof(float)));
  MOETAX_ASSIGN(d_x_pad, PageBuffer::reserve(kMaxGradRows * k * sizeof(float)));
  return {};
}

Result<void> Linear::set_weights(std::span<const float> w) {
  Impl& impl = *impl_;
  if (w.size() != static_cast<std::size_t>(impl.n * impl.k)) {
    return fail(ErrorCode::kUsage,
                fmt::format("linear: weights hold {} values, expected {} x {}", w.size(), impl.n, impl.k));
  }
  MOETAX_ASSIGN(const dnnl::memory plain, bind_matrix(plain_weights(impl.k, impl.n), w.data()));
  impl.pack.run(plain, impl.weights);
  impl.turn.run(impl.weights_view, impl.turned_weights);
  return {};
}

namespace {

// Dense scratch rows to a view's rows.
void store_rows(const float* from, MatrixView<float> to, int threads) {
  for_rows(to.rows, threads, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) std::copy_n(from + i * to.cols, to.cols, to.row(i));
  });
}

template <class T>
MatrixView<T> slice(MatrixView<T> view, std::int64_t begin, std::int64_t rows) {
  return {view.data + begin * view.stride, rows, view.cols, view.stride};
}

}  // namespace

void Linear::forward(ConstRows x, MatrixView<float> y) {
  Impl& impl = *impl_;
  assert(x.cols == impl.k && y.cols == impl.n && x.rows == y.rows && x.dtype == impl.dtype);
  const Tiles tiles(x.rows, kMaxTileRows);
  for (std::int64_t t = 0; t < tiles.count(); ++t) {
    const std::int64_t begin = tiles.begin(t), rows = tiles.size(t), padded = round_up_to_rung(rows);
    const bool in_place = padded == rows && y.stride == y.cols;
    float* out = in_place ? y.row(begin) : impl.y_pad.as<float>();
    impl.product->run(padded, padded_rows(x.slice(begin, rows), padded, impl.x_pad, impl.threads), impl.weights,
                      nullptr, out);
    if (!in_place) store_rows(out, slice(y, begin, rows), impl.threads);
  }
}

void Linear::backward(ConstRows x, MatrixView<const float> d_y, MatrixView<float> d_x, std::span<float> d_w,
                      bool accumulate) {
  Impl& impl = *impl_;
  const std::int64_t k = impl.k, n = impl.n;
  assert(x.cols == k && d_y.cols == n && d_x.cols == k && static_cast<std::int64_t>(d_w.size()) == n * k);
  if (x.rows == 0 && !accumulate) std::fill(d_w.begin(), d_w.end(), 0.0f);
  for (std::int64_t begin = 0; begin < x.rows; begin += kMaxGradRows) {
    const std::int64_t rows = std::min(kMaxGradRows, x.rows - begin), padded = GradGemm::round_up_rows(rows);
    float* wide_x = impl.wide_x.as<float>();
    float* wide_d_y = impl.wide_d_y.as<float>();
    for_rows(padded, impl.threads, 8, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t i = first; i < last; ++i) {
        if (i >= rows) {
          std::fill_n(wide_x + i * k, k, 0.0f);
          std::fill_n(wide_d_y + i * n, n, 0.0f);
          continue;
        }
        widen(x.row(begin + i), x.dtype, k, wide_x + i * k);
        std::copy_n(d_y.row(begin + i), n, wide_d_y + i * n);
      }
    });
    impl.gradient->run(padded, wide_d_y, wide_x, d_w.data(), accumulate || begin > 0);
    const Tiles tiles(rows, kMaxTileRows);
    for (std::int64_t t = 0; t < tiles.count(); ++t) {
      const std::int64_t at = tiles.begin(t), size = tiles.size(t);
      impl.d_product->run(round_up_to_rung(size), wide_d_y + at * n, impl.turned_weights, nullptr, impl.d_x_pad.data());
      store_rows(impl.d_x_pad.as<float>(), slice(d_x, begin + at, size), impl.threads);
    }
  }
}

}  // namespace moetax
