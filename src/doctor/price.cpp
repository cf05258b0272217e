#include "doctor/price.h"

#include <fmt/format.h>

#include "moetax/base/units.h"
#include "moetax/cost/bytes.h"

namespace moetax::doctor {
namespace {

// Kernels that send a token once to each node and copy it on there.
bool sends_once(const JobFacts& job) {
  if (!job.dispatcher) return false;
  const std::string& name = job.dispatcher->value;
  return contains(name, "deepep") || contains(name, "hybrid") || contains(name, "mori") || contains(name, "two");
}

}  // namespace

Cost cannot_price(std::string missing) {
  Cost cost;
  cost.text = "cannot be priced without " + std::move(missing);
  return cost;
}

std::optional<TokenTraffic> token_traffic(const Facts& facts, int groups) {
  const ModelFacts* model = facts.model;
  if (!model || model->experts < 1 || model->topk < 1 || model->topk > model->experts || model->hidden < 1 ||
      groups < 1) {
    return std::nullopt;
  }
  TokenTraffic traffic;
  traffic.once_a_group = sends_once(facts.job);
  const double away = static_cast<double>(groups - 1) / groups;
  const double places =
      traffic.once_a_group ? expected_distinct_groups(model->experts, model->topk, groups) : model->topk;
  traffic.rows = places * away;
  traffic.bytes = 2 * traffic.rows * static_cast<double>(model->hidden) * kBf16Bytes;
  return traffic;
}

std::optional<StepTraffic> step_traffic(const Facts& facts, int groups) {
  const auto token = token_traffic(facts, groups);
  const JobFacts& job = facts.job;
  if (!token || !job.micro_batch || !job.seq_len || facts.model->moe_layers < 1) return std::nullopt;
  StepTraffic step;
  step.token = *token;
  // Ranks that share a sequence hold a part of it each.
  const int parts = (job.cp ? job.cp->value : 1) * (job.is("megatron") && job.tp ? job.tp->value : 1);
  step.tokens = static_cast<double>(job.micro_batch->value) * static_cast<double>(job.seq_len->value) / parts;
  step.layers = static_cast<double>(facts.model->moe_layers) / (job.pp ? job.pp->value : 1);
  const double passes = job.phase == Phase::kInference ? 1 : 2;
  step.bytes = step.tokens * step.layers * token->bytes * passes;
  return step;
}

Cost price_between_nodes(const Facts& facts, int nodes) {
  const auto token = token_traffic(facts, nodes);
  if (!token) return cannot_price("the model's config.json");
  Cost cost;
  cost.text = fmt::format(
      "{} of each token cross nodes in each layer with experts (dispatch and combine, bf16, {:.2f} rows each way)",
      units::bytes_text(token->bytes), token->rows);
  if (facts.model->moe_layers > 0) {
    cost.text += fmt::format(", {} in {} layers", units::bytes_text(token->bytes * facts.model->moe_layers),
                             facts.model->moe_layers);
  }
  const auto step = step_traffic(facts, nodes);
  if (!step) {
    cost.text += "; a step cannot be priced without batch and sequence length";
    return cost;
  }
  cost.bytes = step->bytes;
  cost.text += fmt::format("; {} a rank and micro-batch", units::bytes_text(step->bytes));
  if (const double gbs = facts.node_gbs(); gbs > 0) {
    cost.us = step->bytes / (gbs * 1e3);
    cost.text += fmt::format(", {} at {:.3g} GB/s if nothing hides it", units::time_text(*cost.us), gbs);
  } else {
    cost.text += "; no time without the speed of the link (machine.json of moetax calibrate, or a topology with NICs)";
  }
  return cost;
}

}  // namespace moetax::doctor
