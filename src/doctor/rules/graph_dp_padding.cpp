#include <fmt/format.h>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const JobFacts& job = facts.job;
  const Settings& s = job.settings;
  const Settings::Names kSizes = {"cudagraph_capture_sizes", "cuda_graph_sizes"};
  const Settings::Names kMode = {"cudagraph_mode"};
  const auto mode = s.word(kMode);
  const auto sizes = s.word(kSizes);
  if (!job.dp || job.dp->value < 2 || !job.ep || job.ep->value < 2 || s.on({"enforce_eager"})) return;
  if (!mode || !contains(*mode, "full") || contains(*mode, "piecewise") || !sizes) return;
  if (*sizes != "1" && !sizes->starts_with("1 ") && !sizes->starts_with("[1,")) return;
  Finding& f = out.add(rule, fmt::format("full graphs of size 1 and more over {} data-parallel ranks", job.dp->value));
  f.cause = "a rank with one token and an idle one replay different graphs, with different numbers of dispatches.";
  f.evidence = {s.where(kMode), s.where(kSizes), job.dp->at};
  f.cost.text = "one request alone hangs in decoding";
  f.fix =
      "--compilation-config '{\"cudagraph_mode\": \"PIECEWISE\"}'   # or a version that pads all ranks to the largest "
      "batch";
  f.confidence = Confidence::kPossible;
}

}  // namespace

const Rule kGraphDpPadding = {
    .id = "graph-dp-padding",
    .severity = Severity::kWarning,
    .title = "data-parallel ranks that may replay graphs of different sizes",
    .explanation =
        "With data-parallel attention and expert parallelism every rank takes part in every exchange. Ranks "
        "pick a graph by their own number of tokens; a rank with one request and a rank with none replay "
        "graphs that hold different numbers of dispatches, or pad to different sizes. One request alone "
        "hangs, many together work. All ranks have to pad to the largest batch of any of them.",
    .source = "public reports vLLM 18724, 21637, 41862; vllm-ascend 3128",
    .check = check,
};

}  // namespace moetax::doctor
