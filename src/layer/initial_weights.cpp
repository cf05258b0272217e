#include <cmath>

#include "moetax/base/random.h"
#include "moetax/layer/moe_layer.h"

namespace moetax {

void initial_row(const LayerConfig& config, std::uint64_t seed, int layer_idx, Parameter parameter, ExpertId expert,
                 std::int64_t row, std::span<float> out) {
  const bool down = parameter == Parameter::kW2 || parameter == Parameter::kSharedW2;
  const std::int64_t inter = parameter == Parameter::kSharedW2 ? config.shared_inter : config.inter;
  const float scale = 1.0f / std::sqrt(static_cast<float>(down ? inter : config.hidden));
  const auto parameter_idx = static_cast<std::uint64_t>(parameter);
  const RandomStream stream(
      seed, (static_cast<std::uint64_t>(layer_idx) << 40) | (static_cast<std::uint64_t>(expert) << 8) | parameter_idx);
  const std::uint64_t first = static_cast<std::uint64_t>(row) * out.size();
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = stream.normal(first + i) * scale;
}

}  // namespace moetax
