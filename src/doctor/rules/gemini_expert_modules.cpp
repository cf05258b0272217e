#include <fmt/format.h>

#include "doctor/modules.h"
#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const Settings& s = facts.job.settings;
  const auto plugin = s.word({"plugin", "booster.plugin"});
  if (!plugin || !contains(*plugin, "gemini") || !facts.model || !block_of_expert_modules(*facts.model)) return;
  Finding& f = out.add(rule, "the Gemini plugin over per-expert modules");
  f.cause = fmt::format("chunks are exchanged as modules are used; {} experts a layer are used by some ranks only.",
                        facts.model->experts);
  f.evidence = {s.where({"plugin", "booster.plugin"}), facts.model->at};
  f.cost.text = "the run stops in the synchronisation of gradients";
  f.fix = "--plugin moe_hybrid   # the plugin that knows experts, with its expert-parallel size";
  f.confidence = Confidence::kLikely;
}

}  // namespace

const Rule kGeminiExpertModules = {
    .id = "gemini-expert-modules",
    .severity = Severity::kWarning,
    .title = "a chunked memory manager over experts that ranks do not all use",
    .explanation =
        "Managers that gather parameters in chunks (Gemini, hybrid plugins with ZeRO) expect every rank to "
        "touch every parameter in the same order. With per-expert modules a rank skips those its tokens do "
        "not choose, and the synchronisation of gradients does not end.",
    .source = "public reports ColossalAI 5185, eole 251",
    .check = check,
};

}  // namespace moetax::doctor
