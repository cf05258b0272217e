// In the steady state moetax's own code allocates nothing, whatever the row counts. Every allocation of the process is
// counted; those made inside a call to oneDNN are the library's, and reported.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "expert/matmul.h"
#include "expert/problem.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MOETAX_OWNS_MALLOC 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define MOETAX_OWNS_MALLOC 0
#endif
#endif
#ifndef MOETAX_OWNS_MALLOC
#define MOETAX_OWNS_MALLOC 1
#endif

namespace {

std::atomic<bool> counting{false};
std::atomic<long> own{0}, library{0};
// The flag of the thread that runs the test: the library's team allocates on its behalf.
const std::thread::id main_thread = std::this_thread::get_id();
const bool& inside_on_main = moetax::inside_gemm_library();

[[maybe_unused]] void count() {
  if (!counting.load(std::memory_order_relaxed)) return;
  const bool of_team = std::this_thread::get_id() != main_thread && inside_on_main;
  (moetax::inside_gemm_library() || of_team ? library : own).fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

#if MOETAX_OWNS_MALLOC
// operator new and the library's own allocator end up here too.
extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier): glibc's names for what is replaced here
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* old, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);
// NOLINTEND(bugprone-reserved-identifier)

void* malloc(std::size_t bytes) {
  count();
  return __libc_malloc(bytes);
}
void* calloc(std::size_t number, std::size_t bytes) {
  count();
  return __libc_calloc(number, bytes);
}
void* realloc(void* old, std::size_t bytes) {
  count();
  return __libc_realloc(old, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  count();
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** out, std::size_t alignment, std::size_t bytes) {
  count();
  *out = __libc_memalign(alignment, bytes);
  return *out ? 0 : 12;  // ENOMEM
}
}
#endif

namespace moetax {
namespace {

struct Counts {
  long own, library;
};

template <class Work>
Counts allocations_of(Work work) {
  own = library = 0;
  counting = true;
  work();
  counting = false;
  return {own, library};
}

class Allocations : public testing::TestWithParam<std::tuple<DType, int>> {
 protected:
  void SetUp() override {
    if (!MOETAX_OWNS_MALLOC) GTEST_SKIP() << "a sanitizer owns malloc in this build";
  }
};

TEST_P(Allocations, TheCounterCounts) {
  EXPECT_EQ(allocations_of([] { ::operator delete(::operator new(8)); }).own, 1);
}

TEST_P(Allocations, NoneOfOursInTheSteadyState) {
  const DType dtype = std::get<0>(GetParam());
  const int threads = std::get<1>(GetParam());
  const FfnShape shape{.hidden = 96, .inter = 40, .bias = true};
  // The second problem has row counts that the first has not seen.
  test::Problem warm(shape, dtype, {300, 0, 33, 600}), next(shape, dtype, {17, 5, 259, 640});
  FeedForward ffn = warm.make(threads);
  Linear linear = std::move(*Linear::create(96, 8, dtype, threads));
  FfnSaved saved;
  const auto run = [&](test::Problem& p) {
    test::OwnedRows y(dtype, p.rows, 96);
    test::Gradients gradients(p);
    std::vector<float> logits(p.rows * 8), d_w(std::size_t{8} * 96), d_x(p.rows * 96);
    return allocations_of([&] {
      ffn.forward(p.in(), y.view(), &saved);
      gradients.run(p, ffn, &saved);
      linear.forward(p.x.view(), {logits.data(), p.rows, 8, 8});
      linear.backward(p.x.view(), {logits.data(), p.rows, 8, 8}, {d_x.data(), p.rows, 96, 96}, d_w, false);
    });
  };
  run(warm);
  const Counts counts = run(next);
  EXPECT_EQ(counts.own, 0);
  RecordProperty("library_allocations", static_cast<int>(counts.library));
  std::printf("oneDNN allocated %ld times\n", counts.library);
}

INSTANTIATE_TEST_SUITE_P(All, Allocations,
                         testing::Combine(testing::Values(DType::kBf16, DType::kFp32), testing::Values(1, 2)));

}  // namespace
}  // namespace moetax
