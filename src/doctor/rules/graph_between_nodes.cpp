#include <fmt/format.h>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const JobFacts& job = facts.job;
  const Settings& s = job.settings;
  if (!job.is("sglang") || !job.nodes || job.nodes->value < 2 || !job.tp || s.on({"disable_cuda_graph"})) return;
  const bool attention_over_nodes = !s.on({"enable_dp_attention"}) && job.tp->value % job.nodes->value == 0;
  if (!attention_over_nodes) return;
  Finding& f = out.add(rule, fmt::format("a tensor-parallel group of {} over {} nodes, captured in graphs",
                                         job.tp->value, job.nodes->value));
  f.cause = "its all-reduce runs between nodes inside each replay.";
  f.evidence = {job.tp->at, job.nodes->at};
  f.cost.text = "nothing while it works; graphs off would cost about 5x in decoding (reported)";
  f.fix = "--enable-dp-attention   # attention inside a node; or test with --disable-cuda-graph if decoding hangs";
  f.confidence = Confidence::kPossible;
}

}  // namespace

const Rule kGraphBetweenNodes = {
    .id = "graph-between-nodes",
    .severity = Severity::kNote,
    .title = "collectives of tensor parallelism between nodes inside captured graphs",
    .explanation =
        "A tensor-parallel group over two nodes has its all-reduce inside the decode graph. In reported cases "
        "it did not complete on both nodes once several requests ran, while one request, or graphs switched "
        "off, worked; without graphs decoding was about five times slower.",
    .source = "public report sglang 24574",
    .check = check,
};

}  // namespace moetax::doctor
