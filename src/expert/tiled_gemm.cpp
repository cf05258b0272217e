// RowGemm for machines where the library has no packed product of the type. Weights stay plain; a tile of their columns
// (rows of B^T, contiguous) is converted to fp32 in a small scratch and multiplied by one thread. The library's fp32
// product without AVX-512 picks other loops for odd row counts and splits sums over threads, which would change bits;
// so the row counts here are multiples of 12, which its kernels cover without a remainder, and threads share tiles
// instead.
#include <algorithm>
#include <cassert>
#include <cstring>

#include "expert/gemm.h"
#include "expert/kernels.h"
#include "expert/ladder.h"
#include "expert/row_loop.h"

namespace moetax {
namespace {

constexpr std::int64_t kTileCols = 64;
constexpr std::int64_t kRowUnit = 12;
constexpr int kTiledRungs = rung_of((kMaxTileRows + kRowUnit - 1) / kRowUnit) + 1;

std::int64_t padded_rows(int rung) {
  return kRowUnit * rung_size(rung);
}

class TiledGemm : public RowGemm {
 public:
  explicit TiledGemm(const GemmSpec& spec);  // throws dnnl::error
  Result<void> reserve();
  dnnl::memory::desc weights() const override {
    return {{spec_.k, spec_.n}, dnnl_type(spec_.in), dnnl::memory::format_tag::ba};
  }
  void run(std::int64_t rows, const void* a, const dnnl::memory& b, const float* bias, void* c) override;

 private:
  // Everything one thread needs to multiply a tile on its own.
  struct Worker {
    dnnl::stream stream{cpu_engine()};
    std::vector<Matmul> full, last;  // by rung: tiles of kTileCols columns, and the narrower last one
    LibraryScratch scratch;
    PageBuffer b, c;  // one tile each, fp32
  };
  struct Task {
    std::int64_t rows;
    int rung;
    const std::byte* b;
    const float* bias;
    std::byte* c;
  };
  void load_rows(std::int64_t rows, std::int64_t padded, const void* a);
  void run_tile(Worker& worker, const Task& task, std::int64_t first_col);
  std::int64_t tiles() const { return (spec_.n + kTileCols - 1) / kTileCols; }

  GemmSpec spec_;
  std::vector<Worker> workers_;
  PageBuffer a_;  // fp32, padded with zero rows
};

TiledGemm::TiledGemm(const GemmSpec& spec) : spec_(spec), workers_(spec.threads) {
  const ScopedTeam team(1);
  const auto make = [&](int rung, std::int64_t cols) {
    return Matmul({.a = row_major(padded_rows(rung), spec_.k, DType::kFp32),
                   .b = plain_weights(spec_.k, cols),
                   .c = row_major(padded_rows(rung), cols, DType::kFp32)});
  };
  for (Worker& worker : workers_) {
    for (int rung = 0; rung < kTiledRungs; ++rung) {
      worker.full.push_back(make(rung, kTileCols));
      worker.scratch.require(worker.full.back());
      if (spec_.n % kTileCols == 0) continue;
      worker.last.push_back(make(rung, spec_.n % kTileCols));
      worker.scratch.require(worker.last.back());
    }
    worker.scratch.allocate();
  }
}

Result<void> TiledGemm::reserve() {
  const auto floats = [](std::int64_t count) { return PageBuffer::reserve(count * sizeof(float)); };
  MOETAX_ASSIGN(a_, floats(padded_rows(kTiledRungs - 1) * spec_.k));
  for (Worker& worker : workers_) {
    MOETAX_ASSIGN(worker.b, floats(kTileCols * spec_.k));
    MOETAX_ASSIGN(worker.c, floats(padded_rows(kTiledRungs - 1) * kTileCols));
  }
  return {};
}

void TiledGemm::run(std::int64_t rows, const void* a, const dnnl::memory& b, const float* bias, void* c) {
  assert(rows <= kMaxTileRows);
  const int rung = rung_of((rows + kRowUnit - 1) / kRowUnit);
  load_rows(rows, padded_rows(rung), a);
  const Task task{rows, rung, static_cast<const std::byte*>(b.get_data_handle()), bias, static_cast<std::byte*>(c)};
  const std::int64_t count = static_cast<std::int64_t>(workers_.size());
  parallel_for(count, spec_.threads, 1, [&](std::int64_t begin, std::int64_t end) {
    const ScopedTeam team(1);
    for (std::int64_t w = begin; w < end; ++w) {
      for (std::int64_t tile = tiles() * w / count; tile < tiles() * (w + 1) / count; ++tile) {
        run_tile(workers_[w], task, tile * kTileCols);
      }
    }
  });
}

void TiledGemm::load_rows(std::int64_t rows, std::int64_t padded, const void* a) {
  float* to = a_.as<float>();
  for_rows(rows, spec_.threads, 8, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t at = begin * spec_.k, count = (end - begin) * spec_.k;
    widen(static_cast<const std::byte*>(a) + at * size_of(spec_.in), spec_.in, count, to + at);
  });
  std::fill(to + rows * spec_.k, to + padded * spec_.k, 0.0f);
}

void TiledGemm::run_tile(Worker& worker, const Task& task, std::int64_t first_col) {
  const std::int64_t cols = std::min(kTileCols, spec_.n - first_col);
  const std::byte* plain = task.b + first_col * spec_.k * size_of(spec_.in);
  const void* b = plain;
  if (spec_.in == DType::kBf16) {
    widen(plain, DType::kBf16, cols * spec_.k, worker.b.as<float>());
    b = worker.b.data();
  }
  float* tile = worker.c.as<float>();
  Matmul& matmul = cols == kTileCols ? worker.full[task.rung] : worker.last[task.rung];
  matmul.run(worker.stream, {.a = a_.data(), .c = tile, .scratch = worker.scratch.data()}, b);
  for (std::int64_t i = 0; i < task.rows; ++i) {
    std::byte* to = task.c + (i * spec_.n + first_col) * size_of(spec_.out);
    narrow(tile + i * cols, task.bias ? task.bias + first_col : nullptr, spec_.out, cols, to);
  }
}

}  // namespace

Result<std::unique_ptr<RowGemm>> make_tiled_gemm(const GemmSpec& spec) {
  MOETAX_ASSIGN(auto gemm, guard_library("a tiled matrix product", [&] { return std::make_unique<TiledGemm>(spec); }));
  MOETAX_TRY(gemm->reserve());
  return Result<std::unique_ptr<RowGemm>>(std::move(gemm));
}

}  // namespace moetax
