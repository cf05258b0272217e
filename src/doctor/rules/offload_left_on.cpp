#include <fmt/format.h>

#include "doctor/rules/rules.h"
#include "moetax/base/units.h"

namespace moetax::doctor {
namespace {

// What llama.cpp wrote: weights on host and GPU together against what was free there.
void in_log(const Facts& facts, const Rule& rule, Findings& out) {
  double all = 0, host = 0, free = 0;
  const LogEvent* on_host = nullptr;
  for (const LogEvent* event : facts.log->of(LogKind::kModelBuffer)) {
    if (event->numbers.empty()) continue;
    all += event->numbers[0];
    if (!event->op.starts_with("CPU")) continue;
    host += event->numbers[0];
    if (!on_host || event->numbers[0] > on_host->numbers[0]) on_host = event;
  }
  for (const LogEvent* event : facts.log->of(LogKind::kDeviceFree)) {
    if (!event->numbers.empty()) free += event->numbers[0];
  }
  const LogEvent* why = nullptr;
  for (const LogEvent* event : facts.log->of(LogKind::kLayersOnGpu)) {
    if (event->numbers.size() == 2 && event->numbers[0] < event->numbers[1]) why = event;
  }
  const auto overridden = facts.log->of(LogKind::kExpertsOnHost);
  if (!why && !overridden.empty()) why = overridden.front();
  if (!why || !on_host || host < 0.1 * all || free <= 0 || all > 0.8 * free) return;
  Finding& f = out.add(rule, fmt::format("{} of weights stay on the host, and {} of the GPUs' memory would hold all",
                                         units::bytes_text(host * 0x1p20), units::bytes_text(free * 0x1p20)));
  f.cause = fmt::format("all weights are {}, at most 80 % of what was free.", units::bytes_text(all * 0x1p20));
  f.evidence = {why->at, on_host->at, facts.log->of(LogKind::kDeviceFree).front()->at};
  f.cost.text =
      "the host reads these weights for every token, at its memory's rate instead of the GPU's; 2.5x of "
      "generation and 15x of prompts in one report";
  f.fix = "-ngl 99 without --cpu-moe, --n-cpu-moe and -ot";
  f.confidence = Confidence::kLikely;
}

void check(const Facts& facts, const Rule& rule, Findings& out) {
  in_log(facts, rule, out);
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
