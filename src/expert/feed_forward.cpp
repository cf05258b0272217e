#include "moetax/expert/feed_forward.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <limits>

#include "expert/feed_forward_impl.h"
#include "expert/ladder.h"
#include "expert/row_loop.h"

namespace moetax {
namespace {

constexpr std::size_t kAlignment = 4096;
constexpr std::int64_t kMaxWidth = 1 << 20;  // of H and I; keeps every product of sizes within 64 bits

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

Result<void> check(const FfnShape& shape, int threads) {
  const auto width_ok = [](std::int64_t width) { return width >= 1 && width <= kMaxWidth; };
  if (!width_ok(shape.hidden) || !width_ok(shape.inter)) {
    return fail(ErrorCode::kUsage, fmt::format("experts: hidden {} and inter {} must be between 1 and {}", shape.hidden,
                                               shape.inter, kMaxWidth));
  }
  if (shape.experts < 0) {
    return fail(ErrorCode::kUsage, fmt::format("experts: their number is {}, expected 0 or more", shape.experts));
  }
  if (threads < 1) return fail(ErrorCode::kUsage, fmt::format("experts: {} threads, expected 1 or more", threads));
  return {};
}

Result<void> check_size(int expert, const char* name, std::size_t size, std::int64_t expected) {
  if (size == static_cast<std::size_t>(expected)) return {};
  return fail(ErrorCode::kUsage,
              fmt::format("expert {}: {} holds {} values, expected {}", expert, name, size, expected));
}

}  // namespace

FfnSaved::FfnSaved() : state_(std::make_unique<State>()) {}
FfnSaved::~FfnSaved() = default;
FfnSaved::FfnSaved(FfnSaved&&) noexcept = default;
FfnSaved& FfnSaved::operator=(FfnSaved&&) noexcept = default;
std::size_t FfnSaved::bytes() const {
  return state_ ? state_->gate_up.size() : 0;
}

FeedForward::FeedForward(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
FeedForward::~FeedForward() = default;
FeedForward::FeedForward(FeedForward&&) noexcept = default;
FeedForward& FeedForward::operator=(FeedForward&&) noexcept = default;

Result<FeedForward> FeedForward::create(const FfnShape& shape, DType dtype, int threads) {
  MOETAX_TRY(check(shape, threads));
  auto impl = std::make_unique<Impl>();
  impl->shape = shape;
  impl->dtype = dtype;
  impl->threads = threads;
  MOETAX_TRY(impl->build_products());
  MOETAX_TRY(impl->place_weights());
  MOETAX_TRY(impl->build_backward());
  MOETAX_TRY(impl->reserve_scratch());
  return FeedForward(std::move(impl));
}

Result<void> FeedForward::Impl::build_products() {
  const std::int64_t h = shape.hidden, i = shape.inter;
  MOETAX_ASSIGN(
      up, RowGemm::create({.k = h, .n = 2 * i, .in = dtype, .out = dtype, .bias = shape.bias, .threads = threads}));
  MOETAX_ASSIGN(down,
                RowGemm::create({.k = i, .n = h, .in = dtype, .out = dtype, .bias = shape.bias, .threads = threads}));
  MOETAX_ASSIGN(pack13, WeightReorder::create(plain_weights(h, 2 * i), up->weights(), threads));
  MOETAX_ASSIGN(pack2, WeightReorder::create(plain_weights(i, h), down->weights(), threads));
  return {};
}

Result<void> FeedForward::Impl::place_weights() {
  const std::size_t bytes13 = aligned(up->weights().get_size()), bytes2 = aligned(down->weights().get_size());
  const auto experts = static_cast<std::size_t>(shape.experts);
  const std::size_t physical =
      static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  if (experts > physical / (bytes13 + bytes2)) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("{} experts of {} MiB each do not fit in this machine's {} MiB of memory; {} would",
                            experts, (bytes13 + bytes2) >> 20, physical >> 20, physical / (bytes13 + bytes2)));
  }
  MOETAX_ASSIGN(packed, PageBuffer::reserve(experts * (bytes13 + bytes2)));
  for (std::size_t e = 0; e < experts; ++e) {
    std::byte* place = packed.data() + e * (bytes13 + bytes2);
    MOETAX_ASSIGN(dnnl::memory matrix13, bind_matrix(up->weights(), place));
    MOETAX_ASSIGN(dnnl::memory matrix2, bind_matrix(down->weights(), place + bytes13));
    w13.push_back(std::move(matrix13));
    w2.push_back(std::move(matrix2));
  }
  if (shape.bias) {
    b13.resize(experts * up_width());
    b2.resize(experts * shape.hidden);
  }
  return {};
}

Result<void> FeedForward::Impl::reserve_scratch() {
  const std::size_t element = size_of(dtype);
  const auto rows = [&](PageBuffer& buffer, std::int64_t count, std::int64_t cols, std::size_t bytes) -> Result<void> {
    MOETAX_ASSIGN(buffer, PageBuffer::reserve(static_cast<std::size_t>(count * cols) * bytes));
    return {};
  };
  MOETAX_TRY(rows(x_pad, kMaxGradRows, shape.hidden, element));
  MOETAX_TRY(rows(gate_up, kMaxTileRows, up_width(), element));
  MOETAX_TRY(rows(a, kMaxTileRows, shape.inter, element));
  MOETAX_TRY(rows(y_pad, kMaxTileRows, shape.hidden, element));
  MOETAX_TRY(rows(d_y_pad, kMaxGradRows, shape.hidden, element));
  MOETAX_TRY(rows(d_a, kMaxTileRows, shape.inter, sizeof(float)));
  MOETAX_TRY(rows(d_gate_up, kMaxGradRows, up_width(), element));
  MOETAX_TRY(rows(weighted_a, kMaxGradRows, shape.inter, element));
  return rows(d_x_pad, kMaxTileRows, shape.hidden, element);
}

Result<void> FeedForward::Impl::check_expert(int expert) const {
  if (expert >= 0 && expert < shape.experts) return {};
  return fail(ErrorCode::kUsage, fmt::format("expert {} is not one of the {} held here", expert, shape.experts));
}

Result<void> FeedForward::set_weights(int expert, const ExpertWeights& weights) {
  Impl& impl = *impl_;
  const std::int64_t h = impl.shape.hidden, i = impl.shape.inter, bias = impl.shape.bias ? 1 : 0;
  MOETAX_TRY(impl.check_expert(expert));
  MOETAX_TRY(check_size(expert, "w13", weights.w13.size(), 2 * i * h));
  MOETAX_TRY(check_size(expert, "w2", weights.w2.size(), h * i));
  MOETAX_TRY(check_size(expert, "b13", weights.b13.size(), bias * 2 * i));
  MOETAX_TRY(check_size(expert, "b2", weights.b2.size(), bias * h));
  MOETAX_ASSIGN(const dnnl::memory w13, bind_matrix(plain_weights(h, 2 * i), weights.w13.data()));
  MOETAX_ASSIGN(const dnnl::memory w2, bind_matrix(plain_weights(i, h), weights.w2.data()));
  impl.pack13.run(w13, impl.w13[expert]);
  impl.pack2.run(w2, impl.w2[expert]);
  std::copy(weights.b13.begin(), weights.b13.end(), impl.b13.begin() + expert * bias * 2 * i);
  std::copy(weights.b2.begin(), weights.b2.end(), impl.b2.begin() + expert * bias * h);
  return {};
}

Result<void> FeedForward::fill_weights(int expert,
                                       FunctionRef<void(int matrix, std::int64_t row, std::span<float> out)> row) {
  Impl& impl = *impl_;
  const std::int64_t h = impl.shape.hidden, i = impl.shape.inter;
  MOETAX_TRY(impl.check_expert(expert));
  if (impl.plain.size() == 0) {
    MOETAX_ASSIGN(impl.plain, PageBuffer::reserve(static_cast<std::size_t>(2 * i * h) * sizeof(float)));
  }
  const auto make = [&](int matrix, std::int64_t rows, std::int64_t cols, WeightReorder& pack,
                        const dnnl::memory& to) -> Result<void> {
    float* plain = impl.plain.as<float>();
    for_rows(rows, impl.threads, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) row(matrix, r, {plain + r * cols, static_cast<std::size_t>(cols)});
    });
    MOETAX_ASSIGN(const dnnl::memory from, bind_matrix(plain_weights(cols, rows), plain));
    pack.run(from, to);
    return {};
  };
  MOETAX_TRY(make(0, 2 * i, h, impl.pack13, impl.w13[expert]));
  MOETAX_TRY(make(1, h, i, impl.pack2, impl.w2[expert]));
  if (impl.shape.bias) {
    const auto e = static_cast<std::size_t>(expert);
    row(2, 0, std::span(impl.b13).subspan(e * 2 * i, 2 * i));
    row(3, 0, std::span(impl.b2).subspan(e * h, h));
  }
  return {};
}

void FeedForward::forward(const ExpertRows& in, Rows y, FfnSaved* saved) {
  Impl& impl = *impl_;
  assert(static_cast<int>(in.count.size()) == impl.shape.experts && y.rows == in.rows.rows);
  impl.plain = PageBuffer();  // weights are complete: the room they were made in is not needed any more
  std::byte* kept = nullptr;
  if (saved) {
    kept = saved->state().reserve(in.rows.rows, impl.up_width() * size_of(impl.dtype));
  }
  std::int64_t first = 0;
  for (int e = 0; e < impl.shape.experts; ++e) {
    const Tiles tiles(in.count[e], kMaxTileRows);
    for (std::int64_t t = 0; t < tiles.count(); ++t) {
      impl.forward_tile({e, first + tiles.begin(t), tiles.size(t)}, in.rows, y, kept);
    }
    first += in.count[e];
  }
  assert(first == in.rows.rows);
}

std::byte* FfnSaved::State::reserve(std::int64_t rows, std::size_t row_bytes) {
  const std::size_t bytes = static_cast<std::size_t>(rows + kMaxTileRows) * row_bytes;
  kept = true;
  if (gate_up.size() < bytes) {
    gate_up = PageBuffer();
    Result<PageBuffer> larger = PageBuffer::reserve(bytes);
    kept = larger.has_value();
    if (kept) gate_up = std::move(*larger);
  }
  return kept ? gate_up.data() : nullptr;
}

void FeedForward::Impl::forward_tile(const RowRange& tile, ConstRows in, Rows y, std::byte* kept) {
  const std::int64_t padded = round_up_to_rung(tile.rows);
  const std::size_t up_bytes = up_width() * size_of(dtype), a_bytes = shape.inter * size_of(dtype);
  const std::byte* x = padded_rows(in.slice(tile.begin, tile.rows), padded, x_pad, threads);
  // Padding rows of a kept tile land on the rows of the next, which is computed later, or in the spare room at the end.
  std::byte* gate_up_rows = kept ? kept + tile.begin * up_bytes : gate_up.data();
  up->run(padded, x, w13[tile.expert], bias13(tile.expert), gate_up_rows);
  for_rows(tile.rows, threads, 4, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      activate(activation(), gate_up_rows + i * up_bytes, a.data() + i * a_bytes);
    }
  });
  // y is the caller's: others may read neighbouring rows at this moment, so padding must not touch them.
  std::byte* out = padded == tile.rows ? y.row(tile.begin) : y_pad.data();
  down->run(padded, a.data(), w2[tile.expert], bias2(tile.expert), out);
  if (out == y_pad.data()) copy_dense_rows(out, y.row(tile.begin), tile.rows, y.row_bytes(), threads);
}

void copy_dense_rows(const std::byte* from, std::byte* to, std::int64_t rows, std::size_t row_bytes, int threads) {
  for_rows(rows, threads, 16, [&](std::int64_t begin, std::int64_t end) {
    std::memcpy(to + begin * row_bytes, from + begin * row_bytes, (end - begin) * row_bytes);
  });
}

const std::byte* padded_rows(ConstRows rows, std::int64_t padded, const PageBuffer& scratch, int threads) {
  if (padded == rows.rows) return rows.data;
  copy_dense_rows(rows.data, scratch.data(), rows.rows, rows.row_bytes(), threads);
  return scratch.data();
}

const FfnShape& FeedForward::shape() const {
  return impl_->shape;
}
std::size_t FeedForward::weight_bytes() const {
  return impl_->packed.size();
}
double FeedForward::flops_per_row() const {
  return 6.0 * static_cast<double>(impl_->shape.hidden) * static_cast<double>(impl_->shape.inter);
}

}  // namespace moetax
