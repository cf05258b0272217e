// The experts against what bounds them: arithmetic (one dense product of the same FLOPs, and the register-only peak)
// where they have many rows, memory (the fastest read of the same weights' bytes) where they have few.
// DeepSeek-V2-Lite's routed experts: H = 2048, I = 1408, 64 of them, bf16, two threads.
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cstdio>
#include <oneapi/dnnl/dnnl.hpp>
#include <vector>

#include "harness.h"
#include "moetax/base/memory.h"
#include "moetax/base/parallel.h"
#include "moetax/base/random.h"
#include "moetax/expert/feed_forward.h"
#include "peak.h"
#include "read_memory.h"

namespace moetax::bench {
namespace {

constexpr std::int64_t kHidden = 2048, kInter = 1408;
constexpr int kExperts = 64, kThreads = 2;

// Near-Gaussian numbers are as fast as any; zeros would not be (they burn less power).
void fill(Rows rows) {
  const RandomStream random(1, 2);
  auto* to = reinterpret_cast<Bf16*>(rows.data);
  for (std::int64_t i = 0; i < rows.rows * rows.cols; ++i)
    to[i] = to_bf16(random.normal(static_cast<std::uint64_t>(i)));
}

PageBuffer reserve(std::size_t bytes) {
  Result<PageBuffer> buffer = PageBuffer::reserve(bytes);
  if (!buffer) std::exit(4);
  return std::move(*buffer);
}

struct Buffer {
  PageBuffer memory;
  Rows rows;
  Buffer(std::int64_t n, std::int64_t cols)
      : memory(reserve(static_cast<std::size_t>(n * cols) * 2)), rows{memory.data(), DType::kBf16, n, cols} {
    fill(rows);
  }
};

FeedForward make_experts() {
  Result<FeedForward> made =
      FeedForward::create({.hidden = kHidden, .inter = kInter, .experts = kExperts}, DType::kBf16, kThreads);
  if (!made) std::exit(4);
  const std::int64_t start = now_ns();
  for (int e = 0; e < kExperts; ++e) {
    const RandomStream random(3, static_cast<std::uint64_t>(e));
    const auto filled = made->fill_weights(e, [&](int matrix, std::int64_t row, std::span<float> out) {
      const std::uint64_t first =
          (static_cast<std::uint64_t>(matrix) << 40) + static_cast<std::uint64_t>(row) * out.size();
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = 0.02f * random.normal(first + i);
    });
    if (!filled) std::exit(4);
  }
  fmt::print("weights: {:.2f} GB made and packed in {:.2f} s\n", static_cast<double>(made->weight_bytes()) * 1e-9,
             static_cast<double>(now_ns() - start) * 1e-9);
  return std::move(*made);
}

// One dense product [m, H] x [H, 3I] with packed weights: the same FLOPs as experts with m rows together.
class DenseProduct {
 public:
  explicit DenseProduct(std::int64_t m) : x_(m, kHidden), y_(m, 3 * kInter), w_(3 * kInter, kHidden) {
    using dnnl::memory;
    const auto type = memory::data_type::bf16;
    const memory::desc x({m, kHidden}, type, memory::format_tag::ab), y({m, 3 * kInter}, type, memory::format_tag::ab);
    const memory::desc any({kHidden, 3 * kInter}, type, memory::format_tag::any);
    omp_set_num_threads(kThreads);
    const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(x, any, y), engine_);
    product_ = dnnl::matmul(description);
    packed_ = memory(description.weights_desc(), engine_);
    memory plain({{kHidden, 3 * kInter}, type, memory::format_tag::ba}, engine_, w_.rows.data);
    dnnl::reorder(plain, packed_).execute(stream_, plain, packed_);
    arguments_ = {{DNNL_ARG_SRC, memory(x, engine_, x_.rows.data)},
                  {DNNL_ARG_WEIGHTS, packed_},
                  {DNNL_ARG_DST, memory(y, engine_, y_.rows.data)}};
  }
  void run() {
    omp_set_num_threads(kThreads);
    product_.execute(stream_, arguments_);
    stream_.wait();
  }

 private:
  Buffer x_, y_, w_;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  dnnl::matmul product_;
  dnnl::memory packed_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

void many_rows(FeedForward& experts, std::int64_t rows, double reach) {
  const std::int64_t all = rows * kExperts;
  Buffer x(all, kHidden), y(all, kHidden);
  DenseProduct dense(all);
  const std::vector<std::int32_t> count(kExperts, static_cast<std::int32_t>(rows));
  const auto run = [&] { experts.forward({x.rows, count}, y.rows, nullptr); };
  const auto run_dense = [&] { dense.run(); };
  std::vector<double> peaks;
  const auto peak = [&] { peaks.push_back(bf16_register_peak(kThreads)); };
  const auto timing = interleave({{"experts", run}, {"dense", run_dense}, {"peak", peak}});
  print_row(fmt::format("experts, {} rows each", rows), timing[0], "one dense matmul of the same FLOPs", timing[1],
            timing[1].median_us / timing[0].median_us, fmt::format("of its rate, reach >= {}", reach));
  std::sort(peaks.begin(), peaks.end());
  const double flops = experts.flops_per_row() * static_cast<double>(all);
  fmt::print("  {:.0f} GFLOP/s, dense {:.0f}, register-only peak {:.0f}\n", flops / timing[0].median_us * 1e-3,
             flops / timing[1].median_us * 1e-3, peaks[peaks.size() / 2] * 1e-9);
}

// `tokens` tokens choose 6 experts each, as a router that is not trained would.
std::vector<std::int32_t> route(std::int64_t tokens) {
  std::vector<std::int32_t> count(kExperts, 0);
  const RandomStream random(5, 6);
  std::uint64_t draw = 0;
  for (std::int64_t t = 0; t < tokens; ++t) {
    std::vector<int> chosen;
    while (chosen.size() < 6) {
      const int e = static_cast<int>(random.bits(draw++) % kExperts);
      if (std::find(chosen.begin(), chosen.end(), e) == chosen.end()) chosen.push_back(e);
    }
    for (const int e : chosen) ++count[e];
  }
  return count;
}

void decode(FeedForward& experts, std::int64_t tokens) {
  const std::vector<std::int32_t> count = route(tokens);
  Buffer x(6 * tokens, kHidden), y(6 * tokens, kHidden);
  const std::size_t expert_bytes = experts.weight_bytes() / kExperts;
  Buffer weights(static_cast<std::int64_t>(experts.weight_bytes() / 2 / kHidden), kHidden);
  const auto run = [&] { experts.forward({x.rows, count}, y.rows, nullptr); };
  const auto read = [&](auto how) {
    for (int e = 0; e < kExperts; ++e) {
      if (count[e] > 0) how(weights.memory.data() + static_cast<std::size_t>(e) * expert_bytes, expert_bytes);
    }
  };
  const auto halves = [&] {
    read([](const std::byte* at, std::size_t bytes) { read_in_halves(at, bytes, kThreads); });
  };
  const auto blocks = [&] {
    read([](const std::byte* at, std::size_t bytes) { read_in_blocks(at, bytes, kThreads); });
  };
  const auto timing = interleave({{"experts", run}, {"halves", halves}, {"blocks", blocks}}, 15);
  const Timing& fastest = timing[1].median_us < timing[2].median_us ? timing[1] : timing[2];
  const auto active = std::count_if(count.begin(), count.end(), [](std::int32_t n) { return n > 0; });
  print_row(fmt::format("experts, decode T={} ({} experts)", tokens, active), timing[0],
            "the fastest two-thread read of their weights", fastest, timing[0].median_us / fastest.median_us,
            "x its time, reach <= 1.25");
  fmt::print("  {:.1f} GB/s, read {:.1f}\n",
             static_cast<double>(active) * static_cast<double>(expert_bytes) / timing[0].median_us * 1e-3,
             static_cast<double>(active) * static_cast<double>(expert_bytes) / fastest.median_us * 1e-3);
}

}  // namespace
}  // namespace moetax::bench

int main() {  // NOLINT(bugprone-exception-escape)
  using namespace moetax;
  fmt::print("{}\n", gemm_description());
  FeedForward experts = bench::make_experts();
  bench::decode(experts, 8);
  bench::many_rows(experts, 256, 0.9);
  bench::many_rows(experts, 64, 0.8);
}
