#include "cli/bench_memory.h"

#include <fmt/format.h>

namespace moetax::cli {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

double gradient_bytes(const BenchOptions& options, double expert_elements, double replicated_elements) {
  if (!options.backward) return 0;
  const double reduced_copy = options.ep_size > 0 && options.ep_size < options.ranks ? 2.0 : 1.0;
  return 4.0 * (expert_elements * reduced_copy + 2.0 * replicated_elements);
}

}  // namespace

double memory_needed(const BenchOptions& options) {
  const ModelShape& model = options.model;
  const auto h = static_cast<double>(model.hidden), i = static_cast<double>(model.inter);
  const auto element = static_cast<double>(size_of(options.dtype));
  const double ranks = options.ranks, layers = options.layers;
  const double replicas = options.ep_size > 0 ? ranks / options.ep_size : 1.0;
  const double expert_elements = replicas * model.router.experts * 3.0 * h * i;
  const double replicated_elements =
      ranks * (model.router.experts * h + 3.0 * h * static_cast<double>(model.shared_inter));
  const auto tokens = static_cast<double>(options.total_tokens());
  const double rows = tokens * model.router.topk;
  const double weights = (expert_elements + replicated_elements) * element;
  const double packing_scratch = ranks * 3.0 * h * i * 4.0;
  const bool recompute = options.activations == Activations::kRecompute;
  const double route = tokens * (model.router.experts * 4.0 + model.router.topk * 24.0);
  const double shared = tokens * 2.0 * static_cast<double>(model.shared_inter) * element;
  const double buffers =
      rows * h * element * (recompute ? 4.0 : 2.0) + tokens * h * element * 4.0 + shared + 2.0 * route;
  const double kept_rows = recompute ? 0.0 : rows * (h + 2.0 * i) * element + shared;
  const double kept = options.backward ? kept_rows + route : 0.0;
  const double backward = options.backward ? tokens * h * 12.0 + route : 0.0;
  const double each_layer =
      weights + tokens * h * element + kept + gradient_bytes(options, expert_elements, replicated_elements);
  return layers * each_layer + packing_scratch + buffers + backward;
}

Result<void> check_memory(const BenchOptions& options, double available_bytes) {
  const double needed = memory_needed(options);
  if (needed <= available_bytes) return {};
  BenchOptions smaller = options;
  const int step = std::max(1, options.model.router.groups);
  int experts = options.model.router.experts / step * step;
  for (; experts >= std::max(step, options.model.router.topk); experts -= step) {
    smaller.model.router.experts = experts;
    if (validate(smaller.model.router) && memory_needed(smaller) <= available_bytes) break;
  }
  const std::string advice = experts >= std::max(step, options.model.router.topk)
                                 ? fmt::format("the largest --experts that fits is {}", experts)
                                 : std::string("no number of experts fits; use fewer --tokens or --layers");
  return fail(ErrorCode::kUnavailable,
              fmt::format("this run needs {:.1f} GiB of memory and {:.1f} GiB is available: {}", needed / kGiB,
                          available_bytes / kGiB, advice));
}

}  // namespace moetax::cli
