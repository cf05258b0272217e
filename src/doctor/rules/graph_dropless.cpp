#include <fmt/format.h>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

// A graph over the whole layer, and a dispatcher whose sizes come from the data.
std::optional<Evidence> graph_over_experts(const Settings& s) {
  const Settings::Names kScope = {"cuda_graph_scope"};
  const auto scope = s.word(kScope);
  if (scope && (contains(*scope, "attn") || contains(*scope, "router")) && !contains(*scope, "moe "))
    return std::nullopt;
  for (const std::string_view name : {"enable_cuda_graph", "external_cuda_graph", "cuda_graph_impl"}) {
    if (s.on({name})) return s.find({name})->at;
  }
  return std::nullopt;
}

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const JobFacts& job = facts.job;
  const Settings& s = job.settings;
  if (!job.is("megatron") || !facts.model) return;
  const auto graph = graph_over_experts(s);
  if (!graph || s.on({"moe_pad_expert_input_to_capacity"}) || s.on({"moe_use_device_initiated_grouped_gemm"})) return;
  Finding& f = out.add(rule, "a CUDA graph over experts whose row counts depend on the data");
  f.cause =
      "the dropless dispatcher copies its split sizes to the host in every layer; that is refused during capture, and "
      "the "
      "next step has other sizes anyway.";
  f.evidence = {*graph, facts.model->at};
  for (const LogEvent* event : facts.log->of(LogKind::kCaptureRefused)) f.evidence.push_back(event->at);
  const auto factor = s.number({"moe_expert_capacity_factor"});
  f.cost.text = factor ? fmt::format("padding to the capacity factor {:g} costs {:.0f} % more expert work", *factor,
                                     100 * (*factor - 1))
                       : "does not start; padding to a capacity factor c costs (c - 1) of the experts' time";
  if (factor && *factor > 1) f.cost.share = std::nullopt;
  f.fix = "--cuda-graph-scope attn   # or --moe-expert-capacity-factor 1.25 --moe-pad-expert-input-to-capacity";
  f.confidence = Confidence::kLikely;
}

}  // namespace

const Rule kGraphDropless = {
    .id = "graph-dropless",
    .severity = Severity::kError,
    .title = "a captured graph with shapes that depend on the data",
    .explanation =
        "A CUDA graph replays fixed shapes. Without dropping and padding, how many rows an expert gets changes from "
        "step to "
        "step, and the dispatcher reads the counts on the host (tensor.cpu()), which cannot be captured. Capture "
        "attention "
        "only, pad every expert to its capacity, or use kernels that take the counts from the device.",
    .source = "public report Megatron-LM 1598",
    .check = check,
};

}  // namespace moetax::doctor
