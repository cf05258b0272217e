// Sums of outer products over rows. Where the library's product is native it gets the whole of C; otherwise threads
// share blocks of C's rows, each computed by one thread, because the library would split the sum itself over threads.
#include <algorithm>
#include <cassert>

#include "expert/gemm.h"
#include "expert/kernels.h"
#include "expert/row_loop.h"

namespace moetax {
namespace {

constexpr std::int64_t kBlockRows = 64;  // of C, where it is cut
constexpr std::int64_t kGradRows[] = {16, 32, 64, 128, 192, 256, 320, 384, 448, 512};
static_assert(kGradRows[std::size(kGradRows) - 1] == kMaxGradRows);

std::size_t grad_rung(std::int64_t rows) {
  assert(rows >= 1 && rows <= kMaxGradRows);
  return std::lower_bound(std::begin(kGradRows), std::end(kGradRows), rows) - std::begin(kGradRows);
}

}  // namespace

// The products of one thread: by rung, then overwriting or accumulating.
struct GradGemm::Worker {
  struct Pair {
    Matmul overwrite, accumulate;
  };
  dnnl::stream stream{cpu_engine()};
  std::vector<Pair> full, last;  // blocks of block_ rows, and the shorter last one
  LibraryScratch scratch;
};

struct GradGemm::Task {
  std::size_t rung;
  const std::byte* a;
  const std::byte* b;
  float* c;
  bool accumulate;
};

GradGemm::GradGemm(std::int64_t m, std::int64_t n, DType in, int threads)
    : m_(m),
      n_(n),
      block_(is_native(in) ? m : std::min(m, kBlockRows)),
      in_(in),
      native_(is_native(in)),
      threads_(threads),
      workers_(native_ ? 1 : threads) {
  const ScopedTeam team(native_ ? threads : 1);
  const DType operand_type = native_ ? in : DType::kFp32;
  const auto make = [&](std::int64_t rows, std::int64_t block, bool accumulate) {
    // A^T: element (i, r) of the product's left side is element r * m + i of A.
    const dnnl::memory::desc left({block, rows}, dnnl_type(operand_type), dnnl::memory::dims{1, m_});
    return Matmul({.a = left,
                   .b = row_major(rows, n_, operand_type),
                   .c = row_major(block, n_, DType::kFp32),
                   .accumulate = accumulate});
  };
  const auto add = [&](Worker& worker, std::vector<Worker::Pair>& pairs, std::int64_t rows, std::int64_t block) {
    pairs.push_back({make(rows, block, false), make(rows, block, true)});
    worker.scratch.require(pairs.back().overwrite);
    worker.scratch.require(pairs.back().accumulate);
  };
  for (Worker& worker : workers_) {
    for (const std::int64_t rows : kGradRows) {
      add(worker, worker.full, rows, block_);
      if (m_ % block_ != 0) add(worker, worker.last, rows, m_ % block_);
    }
    worker.scratch.allocate();
  }
}

GradGemm::~GradGemm() = default;

Result<std::unique_ptr<GradGemm>> GradGemm::create(std::int64_t m, std::int64_t n, DType in, int threads) {
  MOETAX_ASSIGN(auto gemm, guard_library("a gradient product",
                                         [&] { return std::unique_ptr<GradGemm>(new GradGemm(m, n, in, threads)); }));
  if (!gemm->native_ && in == DType::kBf16) {
    MOETAX_ASSIGN(gemm->wide_a_, PageBuffer::reserve(kMaxGradRows * m * sizeof(float)));
    MOETAX_ASSIGN(gemm->wide_b_, PageBuffer::reserve(kMaxGradRows * n * sizeof(float)));
  }
  return Result<std::unique_ptr<GradGemm>>(std::move(gemm));
}

std::int64_t GradGemm::round_up_rows(std::int64_t rows) {
  return kGradRows[grad_rung(rows)];
}

void GradGemm::run(std::int64_t rows, const void* a, const void* b, float* c, bool accumulate) {
  const Task task{grad_rung(rows), operand(a, rows * m_, wide_a_), operand(b, rows * n_, wide_b_), c, accumulate};
  const std::int64_t blocks = (m_ + block_ - 1) / block_;
  if (native_) {
    const ScopedTeam team(threads_);
    run_blocks(workers_[0], task, 0, blocks);
    return;
  }
  const auto count = static_cast<std::int64_t>(workers_.size());
  parallel_for(count, threads_, 1, [&](std::int64_t begin, std::int64_t end) {
    const ScopedTeam team(1);
    for (std::int64_t w = begin; w < end; ++w) {
      run_blocks(workers_[w], task, blocks * w / count, blocks * (w + 1) / count);
    }
  });
}

void GradGemm::run_blocks(Worker& worker, const Task& task, std::int64_t begin, std::int64_t end) const {
  const std::size_t element = native_ ? size_of(in_) : sizeof(float);
  for (std::int64_t block = begin; block < end; ++block) {
    const std::int64_t first = block * block_;
    auto& pairs = m_ - first >= block_ ? worker.full : worker.last;
    Matmul& matmul = task.accumulate ? pairs[task.rung].accumulate : pairs[task.rung].overwrite;
    matmul.run(worker.stream,
               {.a = task.a + first * element, .c = task.c + first * n_, .scratch = worker.scratch.data()}, task.b);
  }
}

// `count` elements as the product wants them: as they are, or converted to fp32 in `wide`.
const std::byte* GradGemm::operand(const void* from, std::int64_t count, PageBuffer& wide) const {
  if (native_ || in_ == DType::kFp32) return static_cast<const std::byte*>(from);
  for_rows(count, threads_, 4096, [&](std::int64_t begin, std::int64_t end) {
    widen(static_cast<const std::byte*>(from) + begin * size_of(in_), in_, end - begin, wide.as<float>() + begin);
  });
  return wide.data();
}

}  // namespace moetax
