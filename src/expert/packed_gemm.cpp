// RowGemm over weights in the library's own format, one primitive per size of the ladder.
#include <algorithm>

#include "expert/gemm.h"
#include "expert/ladder.h"

namespace moetax {
namespace {

class PackedGemm : public RowGemm {
 public:
  explicit PackedGemm(const GemmSpec& spec);  // throws dnnl::error
  dnnl::memory::desc weights() const override { return weights_; }
  void run(std::int64_t rows, const void* a, const dnnl::memory& b, const float* bias, void* c) override;

 private:
  int threads_;
  dnnl::stream stream_;
  dnnl::memory::desc weights_;
  std::vector<Matmul> rungs_;  // by rung_of(rows)
  LibraryScratch scratch_;
};

PackedGemm::PackedGemm(const GemmSpec& spec)
    : threads_(spec.threads),
      stream_(cpu_engine()),
      weights_({spec.k, spec.n}, dnnl_type(spec.in), dnnl::memory::format_tag::any) {
  const ScopedTeam team(threads_);
  const auto make = [&](std::int64_t rows) {
    return Matmul({.a = row_major(rows, spec.k, spec.in),
                   .b = weights_,
                   .c = row_major(rows, spec.n, spec.out),
                   .bias = spec.bias});
  };
  // The largest size chooses the format, which all others share.
  weights_ = make(kMaxTileRows).weights();
  for (int rung = 0; rung <= rung_of(kMaxTileRows); ++rung) {
    rungs_.push_back(make(rung_size(rung)));
    scratch_.require(rungs_.back());
  }
  scratch_.allocate();
}

void PackedGemm::run(std::int64_t rows, const void* a, const dnnl::memory& b, const float* bias, void* c) {
  const ScopedTeam team(threads_);
  rungs_[rung_of(rows)].run(stream_, {.a = a, .bias = bias, .c = c, .scratch = scratch_.data()}, b);
}

}  // namespace

Result<std::unique_ptr<RowGemm>> make_packed_gemm(const GemmSpec& spec) {
  return guard_library("a packed matrix product",
                       [&]() -> std::unique_ptr<RowGemm> { return std::make_unique<PackedGemm>(spec); });
}

}  // namespace moetax
