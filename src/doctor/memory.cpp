#include "doctor/memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "doctor/price.h"
#include "moetax/base/units.h"

namespace moetax::doctor {

std::optional<MemoryFacts> memory_of(const Facts& facts) {
  const JobFacts& job = facts.job;
  const ModelFacts* model = facts.model;
  if (job.phase != Phase::kTraining || !model || model->total_elements <= 0 || model->layers < 1) return std::nullopt;
  const double hidden = static_cast<double>(model->hidden), inter = static_cast<double>(model->inter);
  const double tp = job.tp ? job.tp->value : 1, pp = job.pp ? job.pp->value : 1;
  const double etp = job.etp ? job.etp->value : job.is("megatron") ? tp : 1;
  const double experts = 3.0 * hidden * inter * model->experts * model->moe_layers;
  MemoryFacts memory;
  memory.weight_bytes =
      kBf16Bytes / pp *
      (std::max(0.0, model->total_elements - experts) / tp + experts / (etp * (job.ep ? job.ep->value : 1)));
  if (const auto step = step_traffic(facts, 1)) {
    const double with_experts =
        15 * hidden + model->topk * (4 * hidden + 6 * inter) + 6 * static_cast<double>(model->shared_inter);
    const double dense = 34 * hidden * (model->layers - model->moe_layers);
    memory.activation_bytes = step->tokens / pp * (with_experts * model->moe_layers + dense);
  }
  return memory;
}

std::string describe(const MemoryFacts& memory) {
  std::string text = fmt::format("on each GPU: {} of 16-bit weights", units::bytes_text(memory.weight_bytes));
  if (memory.activation_bytes) {
    text += fmt::format(", about {} of activations a micro-batch without recomputation",
                        units::bytes_text(*memory.activation_bytes));
  }
  return text;
}

}  // namespace moetax::doctor
