// What a job keeps on each GPU, from its own sizes.
#pragma once

#include <optional>
#include <string>

#include "doctor/facts.h"

namespace moetax::doctor {

struct MemoryFacts {
  double weight_bytes = 0;  // 16 bits, of the GPU with most experts' share: TP, PP, EP and ETP cut them
  // Kept by the forward for the backward of one micro-batch, without recomputation; nothing where batch or length are
  // unknown. Per token and layer, in bytes: 34 H of a dense layer with a feed-forward of 4 H (arXiv:2205.05198,
  // attention scores not kept); of a layer with experts 15 H, 4 H + 6 I for each of its K rows, and 6 I of the shared
  // experts.
  std::optional<double> activation_bytes;
};
// Of training jobs with a model and known sizes of their parallelism.
std::optional<MemoryFacts> memory_of(const Facts& facts);
std::string describe(const MemoryFacts& memory);

}  // namespace moetax::doctor
