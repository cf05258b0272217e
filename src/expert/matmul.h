// One oneDNN matmul of a fixed size, bound once: later only addresses change, so that a call allocates nothing of ours.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <oneapi/dnnl/dnnl.hpp>
#include <span>
#include <string>
#include <utility>

#include "moetax/base/dtype.h"
#include "moetax/base/result.h"

namespace moetax {

// The process's CPU engine. Engines may be shared by threads; streams may not.
const dnnl::engine& cpu_engine();

// Sets the team size of OpenMP regions started by this thread for the lifetime of the object. oneDNN takes its number
// of threads from there when it builds and when it runs, splits the work by it, and leaves out the shares of threads
// that the runtime then refuses. So nothing here is asked for that could be refused: sizes stay below the thread limit
// (OMP_THREAD_LIMIT), teams may not shrink (OMP_DYNAMIC), and a region inside the caller's own gets its team too.
class ScopedTeam {
 public:
  explicit ScopedTeam(int threads);
  ~ScopedTeam();
  ScopedTeam(const ScopedTeam&) = delete;
  ScopedTeam& operator=(const ScopedTeam&) = delete;

 private:
  int threads_before_, dynamic_before_, levels_before_;
};

// True while the calling thread is inside a call to the GEMM library. The library allocates several times a call, also
// on the threads of its team, which may read their caller's flag meanwhile; the test that counts allocations tells them
// from moetax's own by this.
const bool& inside_gemm_library();

// Runs a primitive on the calling thread's team, to its end. Sizes and formats were checked when it was made: a failure
// here is a programmer's error.
void execute(const dnnl::primitive& primitive, const dnnl::stream& stream, std::span<const dnnl_exec_arg_t> arguments);

dnnl::memory::data_type dnnl_type(DType dtype);
// Row-major [rows, cols], rows `stride` elements apart (0: dense).
dnnl::memory::desc row_major(std::int64_t rows, std::int64_t cols, DType dtype, std::int64_t stride = 0);

// Runs `build`, which may throw dnnl::error, and turns that into a Result that says what was being built.
template <class Build>
auto guard_library(const char* what, Build build) -> Result<decltype(build())> {
  try {
    return build();
  } catch (const dnnl::error& error) {
    return fail(ErrorCode::kInternal, std::string("oneDNN cannot make ") + what + ": " + error.what());
  }
}

class Matmul {
 public:
  struct Spec {
    dnnl::memory::desc a, b, c;  // b may have the format `any`
    bool bias = false;           // fp32 [n]
    bool accumulate = false;     // C += instead of C =
  };
  explicit Matmul(const Spec& spec);  // throws dnnl::error

  dnnl::memory::desc weights() const { return weights_; }
  std::size_t scratch_bytes() const { return scratch_bytes_; }
  struct Addresses {
    const void* a = nullptr;
    const float* bias = nullptr;
    void* c = nullptr;
    void* scratch = nullptr;  // scratch_bytes()
  };
  void run(dnnl::stream& stream, const Addresses& at, const dnnl::memory& b);
  // B at an address. Plain formats only: binding a blocked format to an address rewrites its padding.
  void run(dnnl::stream& stream, const Addresses& at, const void* b);

 private:
  dnnl::matmul primitive_;
  dnnl::memory::desc weights_;
  dnnl::memory a_, b_, c_, bias_, scratch_;
  std::size_t scratch_bytes_ = 0;
};

// Memory that the library's calls work in, shared by calls that follow one another.
class LibraryScratch {
 public:
  void require(const Matmul& matmul) { bytes_ = std::max(bytes_, matmul.scratch_bytes()); }
  void allocate();  // throws dnnl::error
  void* data() const { return memory_.get_data_handle(); }

 private:
  std::size_t bytes_ = 1;
  dnnl::memory memory_;
};

}  // namespace moetax
