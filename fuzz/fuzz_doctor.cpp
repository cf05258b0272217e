// Any text put before the doctor ends in a report that can be printed, redacted and written as JSON.

#include "fuzz.h"
#include "moetax/doctor/doctor.h"
#include "moetax/report/findings.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using moetax::fuzz::require;
  const std::string text(moetax::fuzz::as_text(data, size));
  // Once alone, once beside a model, so that rules that need one are reached.
  static const std::string kModel = R"({"model_type": "qwen3_moe", "hidden_size": 2048, "moe_intermediate_size": 768,
    "num_hidden_layers": 48, "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": true})";
  for (const bool with_model : {false, true}) {
    std::vector<moetax::doctor::Input> inputs = {{"input", text, {}}};
    if (with_model) inputs.push_back({"config.json", kModel, {}});
    moetax::doctor::Examination examination = moetax::doctor::examine(inputs);
    require(examination.checked.size() + examination.skipped.size() >= inputs.size());
    for (const moetax::doctor::Finding& finding : examination.findings) {
      require(!finding.title.empty() && !finding.fix.empty() && !finding.cost.text.empty());
      require(finding.id.starts_with("bill-") || !finding.evidence.empty());
    }
    require(!moetax::to_text(examination).empty());
    require(moetax::parse_baseline(moetax::to_json(examination), "x").has_value());
    moetax::doctor::redact(examination);
  }
  return 0;
}
