#include <fmt/format.h>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const Settings& s = facts.job.settings;
  const Settings::Names kOn = {"enable_eplb", "eplb"};
  const Settings::Names kPolicy = {"eplb_algorithm", "eplb_policy", "eplb_config.policy"};
  const auto nodes = facts.job.ep_nodes();
  if (!s.on(kOn) || !nodes || *nodes < 2) return;
  const auto policy = s.word(kPolicy);
  if (s.find(kPolicy) && (!policy || contains(*policy, "hierarch") || contains(*policy, "auto"))) return;
  Finding& f = out.add(rule, fmt::format("experts are balanced over {} nodes by their load alone", *nodes));
  f.cause = policy ? fmt::format("the policy {} looks at rows only.", *policy)
                   : "no policy is named; the usual one looks at rows only where groups do not divide the nodes.";
  f.evidence = {s.where(kOn)};
  if (facts.job.ep) f.evidence.push_back(facts.job.ep->at);
  f.cost = price_between_nodes(facts, *nodes);
  f.fix = facts.job.is("sglang")
              ? "--eplb-algorithm deepseek_hierarchical   # and compare bytes between nodes"
              : "a hierarchical policy, groups of experts kept on a node; compare bytes between nodes";
  f.confidence = Confidence::kPossible;
}

}  // namespace

const Rule kEplbIgnoresLinks = {
    .id = "eplb-ignores-links",
    .severity = Severity::kNote,
    .title = "a balancer that counts rows and not links",
    .explanation =
        "Balancing by load alone may put experts that are chosen together on different nodes: ranks are even, and more "
        "rows cross nodes than before. With several nodes a hierarchical placement first keeps groups of experts on a "
        "node and balances inside it. On one node there is nothing to lose: all links are alike.",
    .source = "public report on EPIC (SIGCOMM 2026), awesome-papers 228; the two policies of DeepSeek's EPLB",
    .check = check,
};

}  // namespace moetax::doctor
