#include <fmt/format.h>

#include "doctor/rules/rules.h"
#include "moetax/base/units.h"

namespace moetax::doctor {
namespace {

// "ampere_sgemm_128x64_tn", "cutlass_80_simt_sgemm_...": not those that use tensor cores (tf32, s1688, tensorop).
bool without_tensor_cores(std::string_view name) {
  return contains(name, "sgemm") && !contains(name, "tf32") && !contains(name, "s1688") && !contains(name, "s16816") &&
         !contains(name, "tensorop") && !contains(name, "xmma");
}

void check(const Facts& facts, const Rule& rule, Findings& out) {
  for (const KernelTableFacts& entry : facts.all_kernel_tables()) {
    double all = 0, slow = 0;
    const KernelTotal* most = nullptr;
    for (const KernelTotal& kernel : entry.table.kernels) {
      all += kernel.ns;
      if (!without_tensor_cores(kernel.name)) continue;
      slow += kernel.ns;
      if (!most || kernel.ns > most->ns) most = &kernel;
    }
    if (!most || slow < 0.03 * all) continue;
    Finding& f = out.add(
        rule, fmt::format("products without tensor cores take {:.1f} % of the kernels' time", 100 * slow / all));
    f.cause = "fp32 operands: most often the router, under autocast or with its weights in fp32.";
    f.evidence = {{entry.file, 0,
                   fmt::format("{}: {} in {} launches", most->name.substr(0, 80), units::time_text(most->ns * 1e-3),
                               most->instances)}};
    f.cost.us = slow * 1e-3;
    f.cost.text = fmt::format("{} of {}; such kernels reached 4 % of the GPU's rate in one report",
                              units::time_text(slow * 1e-3), units::time_text(all * 1e-3));
    f.fix = "with torch.autocast('cuda', enabled=False): logits = torch.mm(x_bf16, w_bf16, out_dtype=torch.float32)";
    f.confidence = Confidence::kLikely;
  }
}

}  // namespace

const Rule kGateSimt = {
    .id = "gate-simt",
    .severity = Severity::kWarning,
    .title = "fp32 products on CUDA cores",
    .explanation =
        "A router that autocast lifts to fp32 is computed by sgemm kernels without tensor cores: 4 % of the GPU's "
        "speed, and 8 to 9 % of a step in one report. A product of bf16 inputs with fp32 output keeps every choice of "
        "expert (0 of 8192 tokens changed) at tensor-core speed.",
    .source = "public report torchtitan 4273",
    .check = check,
};

}  // namespace moetax::doctor
