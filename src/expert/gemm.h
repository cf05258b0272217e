// What the feed-forward needs of a GEMM library, and nothing more: products with packed weights (RowGemm), products for
// weight gradients (GradGemm), and packing (WeightReorder). The library is oneDNN.
//
// Three promises that oneDNN alone does not make, and that this file's users and their tests rely on:
// - nothing is built or tuned after construction: sizes are those of ladder.h, arguments are bound once;
// - a row of a RowGemm has the same bits whatever the other rows, their number and the number of threads;
// - the bits of a GradGemm depend on the rows and their order only.
// Objects are used by one thread at a time. They start no threads when made for one.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "expert/matmul.h"
#include "moetax/base/dtype.h"
#include "moetax/base/memory.h"
#include "moetax/base/result.h"

namespace moetax {

// Whether the library multiplies matrices of this type directly, with packed weights. Otherwise weights stay plain, and
// tiles of their columns are converted to fp32 and multiplied one by one.
bool is_native(DType dtype);

// C [rows, n] = A [rows, k] B (+ bias [n]).
struct GemmSpec {
  std::int64_t k = 0;
  std::int64_t n = 0;
  DType in = DType::kBf16;   // A and B
  DType out = DType::kBf16;  // C; sums are fp32
  bool bias = false;         // fp32
  int threads = 1;
};

class RowGemm {
 public:
  static Result<std::unique_ptr<RowGemm>> create(const GemmSpec& spec);
  virtual ~RowGemm() = default;

  // How B [k, n] lies in memory.
  virtual dnnl::memory::desc weights() const = 0;
  // `rows` is a size of ladder.h, at most kMaxTileRows; A and C hold that many dense rows. No bias: null.
  virtual void run(std::int64_t rows, const void* a, const dnnl::memory& b, const float* bias, void* c) = 0;
};

// The two kinds that create() chooses between by is_native().
Result<std::unique_ptr<RowGemm>> make_packed_gemm(const GemmSpec& spec);
Result<std::unique_ptr<RowGemm>> make_tiled_gemm(const GemmSpec& spec);

// Rows that one GradGemm call sums over at most. Each call passes over all of C, so few, long calls.
inline constexpr std::int64_t kMaxGradRows = 512;

// C [m, n] fp32 = (or +=) A^T B, with A [rows, m] and B [rows, n].
class GradGemm {
 public:
  static Result<std::unique_ptr<GradGemm>> create(std::int64_t m, std::int64_t n, DType in, int threads);
  ~GradGemm();

  // Row counts are rounded up to this, at most kMaxGradRows; the caller zeroes the added rows of A and B.
  static std::int64_t round_up_rows(std::int64_t rows);
  void run(std::int64_t rows, const void* a, const void* b, float* c, bool accumulate);

 private:
  struct Worker;
  struct Task;
  GradGemm(std::int64_t m, std::int64_t n, DType in, int threads);
  void run_blocks(Worker& worker, const Task& task, std::int64_t begin, std::int64_t end) const;
  const std::byte* operand(const void* from, std::int64_t count, PageBuffer& wide) const;

  std::int64_t m_, n_, block_;
  DType in_;
  bool native_;
  int threads_;
  std::vector<Worker> workers_;
  PageBuffer wide_a_, wide_b_;
};

// Copies a matrix from one format to another, converting its type. run()'s matrices must have the formats given here.
class WeightReorder {
 public:
  static Result<WeightReorder> create(const dnnl::memory::desc& from, const dnnl::memory::desc& to, int threads);
  void run(const dnnl::memory& from, const dnnl::memory& to);

 private:
  dnnl::reorder reorder_;
  dnnl::memory scratch_;
  dnnl::stream stream_;
  int threads_ = 1;
};

// The format of B^T when B has format `desc`: the same bytes, read the other way round.
dnnl::memory::desc transposed(const dnnl::memory::desc& desc);
// Weights as callers have them, B^T [n, k] row-major fp32, seen as B [k, n].
dnnl::memory::desc plain_weights(std::int64_t k, std::int64_t n);
// A matrix of format `desc` at `place`, which must outlive it.
Result<dnnl::memory> bind_matrix(const dnnl::memory::desc& desc, const void* place);

}  // namespace moetax
