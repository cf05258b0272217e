#include <fmt/format.h>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

// Crossing is the point of large EP groups; it is worth saying when a smaller group would hold the model as well, and a
// warning when the kernels in use send a token once for each expert.
void check(const Facts& facts, const Rule& rule, Findings& out) {
  const JobFacts& job = facts.job;
  const auto nodes = job.ep_nodes();
  if (!nodes || *nodes < 2 || !job.gpus_per_node || !job.ep) return;
  const auto token = token_traffic(facts, *nodes);
  if (!token) return;
  const int per_node = job.gpus_per_node->value;
  Finding& f = out.add(rule, fmt::format("EP groups of {} lie on {} nodes", job.ep->value, *nodes));
  f.severity = Severity::kNote;
  f.cause =
      fmt::format("{} ranks in a row, {} GPUs a node: of the rows of a token {:.0f} % leave its node, in every layer.",
                  *job.ep_span(), per_node, 100.0 * (*nodes - 1) / *nodes);
  f.evidence = {job.ep->at, job.gpus_per_node->at};
  f.cost = price_between_nodes(facts, *nodes);
  const int inside = per_node / std::max(1, *job.ep_span() / job.ep->value);
  f.fix = inside > 1 ? fmt::format(
                           "if memory allows, EP {} and as much more pipeline or data parallelism keep the exchange "
                           "inside a node",
                           inside)
                     : "an exchange that sends a token once to each node (two-level; DeepEP)";
  if (!token->once_a_group) f.fix += "; otherwise an exchange that sends a token once to each node (two-level; DeepEP)";
  f.confidence = Confidence::kCertain;
}

}  // namespace

const Rule kEpCrossNode = {
    .id = "ep-cross-node",
    .severity = Severity::kNote,
    .title = "EP groups reach over several nodes",
    .explanation =
        "Each token goes to the ranks of its K experts and back in every layer. Inside a node that is NVLink; between "
        "nodes "
        "it is the network, ten to twenty times slower. Bytes of a token and layer, dispatch and combine together: "
        "2 x rows x H x 2 bytes, where rows is K (n-1)/n for n nodes when every expert gets a copy of its own, and "
        "E[distinct nodes] (n-1)/n when a token is sent once to each node. Pipeline parallelism sends H x 2 bytes of a "
        "token between stages instead, once a stage.",
    .source = "byte accounting as in moetax's cost room (docs/exchange.md); public reports Tutel 187, gpt-neox 1210",
    .check = check,
};

}  // namespace moetax::doctor
