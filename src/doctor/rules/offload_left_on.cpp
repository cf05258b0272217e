#include <fmt/format.h>

#include "doctor/rules/rules.h"
#include "moetax/base/units.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const JobFacts& job = facts.job;
  const Settings& s = job.settings;
  const Settings::Names kDevice = {"offload_param.device", "offload_optimizer.device", "offload_optimizer_device",
                                   "offload_param_device"};
  const Settings::Names kExperts = {"cpu_moe", "n_cpu_moe"};
  if (!facts.model || !facts.gpu || facts.gpu->value.memory_gib <= 0 || facts.model->total_elements <= 0) return;
  const bool experts = s.on(kExperts);
  if (!experts && s.word(kDevice) != "cpu") return;
  // 16-bit weights and gradients, fp32 weights and two moments over all ranks.
  const double ranks = job.world ? job.world->value : job.gpus_per_node ? job.gpus_per_node->value : 1;
  const double needed = facts.model->total_elements * (experts ? 2.0 : 16.0 / ranks);
  const double memory = facts.gpu->value.memory_gib * 0x1p30;
  if (needed > 0.6 * memory) return;
  Finding& f = out.add(rule, fmt::format("offload is on, and {} of {} would be used without", units::bytes_text(needed),
                                         units::bytes_text(memory)));
  f.cause = experts ? "the weights fit on the GPU." : fmt::format("16 bytes a parameter over {:.0f} ranks.", ranks);
  f.evidence = {experts ? s.where(kExperts) : s.where(kDevice), facts.model->at, facts.gpu->at};
  f.cost.bytes = facts.model->total_elements * 2 / (experts ? 1 : ranks);
  f.cost.text = fmt::format("{} over the host link in each step", units::bytes_text(*f.cost.bytes));
  f.fix = experts ? "drop --cpu-moe" : "\"offload_optimizer\": {\"device\": \"none\"}";
  f.confidence = Confidence::kLikely;
}

}  // namespace

const Rule kOffloadLeftOn = {
    .id = "offload-left-on",
    .severity = Severity::kWarning,
    .title = "offload flags where the model fits without",
    .explanation =
        "Offload trades time for memory. Left on where weights, gradients and optimizer fit, every step "
        "copies them over the host link for nothing, and the optimizer runs on the host.",
    .source = "public reports ollama 11772, ik_llama 1765; byte counts as in arXiv:1910.02054",
    .check = check,
};

}  // namespace moetax::doctor
