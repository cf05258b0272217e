#include "cli/bench_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "moetax/meter/ledger.h"

namespace moetax::cli {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;
constexpr double kGiB = 1024.0 * kMiB;
constexpr double kProcess = 40.0 * kMiB;  // code, libraries and buffers of fixed size of a rank, measured: 33 MiB

// What oneDNN generates for the row counts of one feed-forward of a rank, whatever its widths. Without bf16
// instructions each thread has its own for the fp32 tiles. Measured: 16, 36, 35 and 80 MiB with one thread.
double kernel_bytes(bool backward, bool tiled, int threads) {
  if (!tiled) return (backward ? 38.0 : 18.0) * kMiB;
  return (backward ? 65.0 + 14.0 * threads : 28.0 + 9.0 * threads) * kMiB;
}

double tokens_here(const BenchOptions& options) {
  double tokens = 0;
  for (const Rank rank : options.here) tokens += static_cast<double>(options.tokens[static_cast<std::size_t>(rank)]);
  return tokens;
}

// The sizes of a run as numbers to multiply. All terms below are of one layer, all ranks of this node together.
struct Sizes {
  Sizes(const BenchOptions& options, bool native_bf16)
      : h(static_cast<double>(options.model.hidden)),
        i(static_cast<double>(options.model.inter)),
        shared_i(static_cast<double>(options.model.shared_inter)),
        experts(options.model.router.experts),
        topk(options.model.router.topk),
        element(static_cast<double>(size_of(options.dtype))),
        ranks(static_cast<double>(options.here.size())),
        nodes(options.nodes),
        passes_on(options.exchange == ExchangeAlgorithm::kRing || options.exchange == ExchangeAlgorithm::kMesh2d ||
                  options.auto_exchange || options.decompose),
        replicas(options.ep_size > 0 ? static_cast<double>(options.ranks) / options.ep_size : 1.0),
        tokens(tokens_here(options)),
        choices(tokens * topk),
        backward(options.backward),
        recompute(options.activations == Activations::kRecompute),
        kernels(kernel_bytes(backward, options.dtype == DType::kBf16 && !native_bf16, options.threads)) {
    const LayerElements layer = layer_elements(options.model);
    const int ep_size = options.ep_size > 0 ? options.ep_size : options.ranks;
    const ExpertPlacement placement{options.model.router.experts, ep_size};
    for (const Rank rank : options.here) expert_elements += placement.count(rank % ep_size) * layer.expert;
    replicated_elements = ranks * layer.replicated;
  }

  double h, i, shared_i, experts, topk, element, ranks, nodes;
  bool passes_on;
  double replicas;
  double tokens, choices;  // a choice is a row of an expert
  bool backward, recompute;
  double kernels;
  double expert_elements = 0, replicated_elements = 0;
};

// Replicated parameters' sums are made apart from the gradients, with several replicas those of experts too.
double gradient_bytes(const Sizes& s) {
  if (!s.backward) return 0;
  return 4.0 * (s.expert_elements * (s.replicas > 1 ? 2.0 : 1.0) + 2.0 * s.replicated_elements);
}

// What a feed-forward of inner width `inter` needs beside its weights: padded tiles of 256 and 512 rows, room to make a
// matrix in; for the backward one expert's weights packed the other way round, more tiles, and the operands of weight
// gradients once more in fp32, by this library or by oneDNN.
double feed_forward_scratch(const Sizes& s, double inter) {
  const double forward = (512.0 * s.h + 256.0 * (3.0 * inter + s.h)) * s.element + 8.0 * inter * s.h;
  const double turned = 3.0 * inter * s.h * s.element;
  const double tiles = 512.0 * (s.h + 3.0 * inter) * s.element + 256.0 * (4.0 * inter + s.h * s.element);
  const double operands = 512.0 * (2.0 * s.h + 3.0 * inter) * 4.0;
  const double backward = turned + tiles + operands;
  return s.ranks * (s.kernels + forward + (s.backward ? backward : 0.0));
}

double layer_scratch(const Sizes& s) {
  const double router = s.tokens * s.experts * 4.0 + s.ranks * 256.0 * (s.h * s.element + 4.0 * s.experts);
  const double router_backward = s.tokens * (s.experts + s.h) * 4.0 + s.choices * 8.0 +
                                 s.ranks * 4.0 * (512.0 * (2.0 * s.h + s.experts) + s.experts * s.h);
  double bytes = feed_forward_scratch(s, s.i) + router + s.choices * 8.0 + (s.backward ? router_backward : 0.0);
  if (s.shared_i > 0) {
    bytes += feed_forward_scratch(s, s.shared_i) + s.tokens * s.h * s.element * (s.backward ? 2.0 : 1.0);
  }
  return bytes;
}

// What a forward leaves for its backward.
double kept_bytes(const Sizes& s) {
  if (!s.backward) return 0;
  const double layout = s.choices * 32.0 + s.tokens * s.experts * 4.0;
  if (s.recompute) return layout;
  return layout + (s.choices * (s.h + 2.0 * s.i) + s.tokens * 2.0 * s.shared_i) * s.element;
}

// Shared by all layers: the exchange's rows and results, and the stream of tokens and gradients.
double common_bytes(const Sizes& s) {
  const double exchange = s.choices * (2.0 * s.h * s.element + 16.0) * (s.recompute ? 2.0 : 1.0);
  // Rows of other nodes come back into memory of their own; where bundles are passed on each is held up to three times.
  const double crossing = s.choices * s.h * s.element * (s.nodes - 1.0) / s.nodes;
  const double stream = s.tokens * s.h * (s.element + (s.backward ? 2.0 * s.element + 4.0 : 0.0));
  return exchange + crossing * (s.passes_on ? 4.0 : 1.0) + stream + s.choices * 8.0;
}

// The ledgers' reserved memory, and what rank 0 copies of it on the way to the bill.
double ledger_bytes(const BenchOptions& options) {
  const double records = static_cast<double>(options.recorded_steps()) * options.exchanges_per_step();
  return static_cast<double>(options.here.size()) * records *
         static_cast<double>(5 * sizeof(LedgerExchange) + 8 * sizeof(LedgerWait));
}

double of_one_run(const BenchOptions& options, bool native_bf16) {
  const Sizes s(options, native_bf16);
  const double weights = (s.expert_elements + s.replicated_elements) * s.element;
  const double input = s.tokens * s.h * s.element;
  const double each_layer = weights + gradient_bytes(s) + layer_scratch(s) + kept_bytes(s) + input;
  return options.layers * each_layer + common_bytes(s) + ledger_bytes(options) + s.ranks * kProcess;
}

}  // namespace

double memory_needed(const BenchOptions& options, bool native_bf16) {
  const double needed = of_one_run(options, native_bf16);
  if (!options.stress.replicas) return needed;
  BenchOptions replicas = options;  // run after the ranks that exchange are gone
  replicas.ep_size = 1;
  return std::max(needed, of_one_run(replicas, native_bf16));
}

Result<void> check_memory(const BenchOptions& options, const HostInfo& host) {
  const auto available_bytes = static_cast<double>(host.available_bytes);
  const double needed = memory_needed(options, host.bf16);
  if (needed <= available_bytes) return {};
  BenchOptions smaller = options;
  const int step = std::max(1, options.model.router.groups);
  int experts = options.model.router.experts / step * step;
  for (; experts >= std::max(step, options.model.router.topk); experts -= step) {
    smaller.model.router.experts = experts;
    if (validate(smaller.model.router) && memory_needed(smaller, host.bf16) <= available_bytes) break;
  }
  const std::string advice = experts >= std::max(step, options.model.router.topk)
                                 ? fmt::format("the largest --experts that fits is {}", experts)
                                 : std::string("no number of experts fits; use fewer --tokens or --layers");
  return fail(ErrorCode::kUnavailable,
              fmt::format("this run needs {:.1f} GiB of memory and {:.1f} GiB is available: {}", needed / kGiB,
                          available_bytes / kGiB, advice));
}

}  // namespace moetax::cli
