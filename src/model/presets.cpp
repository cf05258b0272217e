#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <utility>

#include "moetax/base/text.h"
#include "moetax/model/shape.h"

namespace moetax {
namespace {

RouterConfig softmax(int experts, int topk, bool renormalize) {
  return {.experts = experts, .topk = topk, .score = Score::kSoftmax, .renormalize = renormalize};
}

// arXiv:2401.06066; V2-Lite has the same layer, with one layer less.
ModelShape deepseek_moe_16b() {
  return {.name = "deepseek-moe-16b",
          .hidden = 2048,
          .inter = 1408,
          .shared_inter = 2 * std::int64_t{1408},
          .router = softmax(64, 6, false),
          .layers = 28,
          .moe_layers = 27};
}

ModelShape deepseek_v2_lite() {
  return {.name = "deepseek-v2-lite",
          .hidden = 2048,
          .inter = 1408,
          .shared_inter = 2 * std::int64_t{1408},
          .router = softmax(64, 6, false),
          .layers = 27,
          .moe_layers = 26};
}

// arXiv:2405.04434
ModelShape deepseek_v2() {
  return {.name = "deepseek-v2",
          .hidden = 5120,
          .inter = 1536,
          .shared_inter = 2 * std::int64_t{1536},
          .router = {.experts = 160,
                     .topk = 6,
                     .score = Score::kSoftmax,
                     .renormalize = false,
                     .scale = 16.0f,
                     .groups = 8,
                     .topk_groups = 3,
                     .group_score = GroupScore::kMax},
          .layers = 60,
          .moe_layers = 59};
}

// arXiv:2412.19437
ModelShape deepseek_v3() {
  return {.name = "deepseek-v3",
          .hidden = 7168,
          .inter = 2048,
          .shared_inter = 2048,
          .router = {.experts = 256,
                     .topk = 8,
                     .score = Score::kSigmoid,
                     .renormalize = true,
                     .scale = 2.5f,
                     .groups = 8,
                     .topk_groups = 4,
                     .group_score = GroupScore::kTopTwoSum},
          .selection_bias = true,
          .layers = 61,
          .moe_layers = 58};
}

// arXiv:2401.04088; a softmax over the chosen logits is one over all, divided by the sum of the chosen.
ModelShape mixtral_8x7b() {
  return {.name = "mixtral-8x7b",
          .hidden = 4096,
          .inter = 14336,
          .router = softmax(8, 2, true),
          .layers = 32,
          .moe_layers = 32};
}

// arXiv:2505.09388
ModelShape qwen3_30b_a3b() {
  return {.name = "qwen3-30b-a3b",
          .hidden = 2048,
          .inter = 768,
          .router = softmax(128, 8, true),
          .layers = 48,
          .moe_layers = 48};
}

// arXiv:2409.02060
ModelShape olmoe_1b_7b() {
  return {.name = "olmoe-1b-7b",
          .hidden = 2048,
          .inter = 1024,
          .router = softmax(64, 8, false),
          .layers = 16,
          .moe_layers = 16};
}

// arXiv:2508.10925
ModelShape gpt_oss_20b() {
  return {.name = "gpt-oss-20b",
          .hidden = 2880,
          .inter = 2880,
          .router = softmax(32, 4, true),
          .router_bias = true,
          .activation = Activation::kClampedSwiGlu,
          .clamp_limit = 7.0f,
          .expert_bias = true,
          .layers = 24,
          .moe_layers = 24};
}

struct Preset {
  std::string_view name;
  ModelShape (*make)();
};

constexpr std::array kPresets = {
    Preset{"deepseek-moe-16b", deepseek_moe_16b}, Preset{"deepseek-v2-lite", deepseek_v2_lite},
    Preset{"deepseek-v2", deepseek_v2},           Preset{"deepseek-v3", deepseek_v3},
    Preset{"mixtral-8x7b", mixtral_8x7b},         Preset{"qwen3-30b-a3b", qwen3_30b_a3b},
    Preset{"olmoe-1b-7b", olmoe_1b_7b},           Preset{"gpt-oss-20b", gpt_oss_20b},
};

// Levenshtein's distance: the fewest insertions, deletions and replacements that turn a into b.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replace = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replace, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

std::vector<std::string_view> nearest_presets(std::string_view name) {
  constexpr std::size_t kListed = 3;
  std::vector<std::string_view> names = preset_names();
  std::stable_sort(names.begin(), names.end(), [name](std::string_view a, std::string_view b) {
    return edit_distance(name, a) < edit_distance(name, b);
  });
  names.resize(kListed);
  return names;
}

}  // namespace

std::vector<std::string_view> preset_names() {
  std::vector<std::string_view> names(kPresets.size());
  std::transform(kPresets.begin(), kPresets.end(), names.begin(), [](const Preset& entry) { return entry.name; });
  return names;
}

Result<ModelShape> preset(std::string_view name) {
  for (const Preset& entry : kPresets) {
    if (entry.name == name) return entry.make();
  }
  return fail(ErrorCode::kUsage, fmt::format("no preset {}; the nearest are {}", in_quotes(name),
                                             fmt::join(nearest_presets(name.substr(0, 60)), ", ")));
}

LayerElements layer_elements(const ModelShape& shape) {
  const auto hidden = static_cast<double>(shape.hidden);
  const auto inter = static_cast<double>(shape.inter);
  const double experts = shape.router.experts;
  const double shared = 3 * hidden * static_cast<double>(shape.shared_inter);
  const double router = experts * (hidden + (shape.router_bias ? 1 : 0) + (shape.selection_bias ? 1 : 0));
  return {3 * hidden * inter + (shape.expert_bias ? 2 * inter + hidden : 0), shared + router};
}

double layer_weight_bytes(const ModelShape& shape, std::size_t bytes_per_element) {
  const LayerElements elements = layer_elements(shape);
  return (shape.router.experts * elements.expert + elements.replicated) * static_cast<double>(bytes_per_element);
}

}  // namespace moetax
