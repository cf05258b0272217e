#include <fmt/format.h>

#include <map>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

// DeepEP's tuning prints its best rates; two files, or two runs in one, tell of different numbers of nodes.
void check(const Facts& facts, const Rule& rule, Findings& out) {
  std::map<std::string, const LogEvent*> best_of_file;
  for (const LogEvent* event : facts.log->of(LogKind::kTuned)) {
    if (event->numbers.empty() || event->op != "dispatch") continue;
    auto& best = best_of_file[event->at.file];
    if (!best || event->numbers[0] > best->numbers[0]) best = event;
  }
  const LogEvent *fast = nullptr, *slow = nullptr;
  for (const auto& [file, event] : best_of_file) {
    if (!fast || event->numbers[0] > fast->numbers[0]) fast = event;
    if (!slow || event->numbers[0] < slow->numbers[0]) slow = event;
  }
  if (!fast || fast == slow || slow->numbers[0] > 0.6 * fast->numbers[0]) return;
  Finding& f = out.add(rule, fmt::format("dispatch falls from {:.1f} to {:.1f} GB/s between two runs", fast->numbers[0],
                                         slow->numbers[0]));
  f.cause = "the same kernels and adapters reach much less in one of them: routes collide, or rails are crossed.";
  f.evidence = {fast->at, slow->at};
  f.cost.text = fmt::format("{:.1f}x the time of every exchange", fast->numbers[0] / slow->numbers[0]);
  f.fix =
      "run pairs of nodes, same rail to same rail; export NCCL_IB_ADAPTIVE_ROUTING=1 (NVSHMEM: "
      "NVSHMEM_IB_ENABLE_RELAXED_ORDERING=1) "
      "and switch adaptive routing on in the fabric";
  f.confidence = Confidence::kLikely;
}

}  // namespace

const Rule kBandwidthDropNodes = {
    .id = "bandwidth-drop-nodes",
    .severity = Severity::kWarning,
    .title = "bandwidth that falls when a third node joins",
    .explanation =
        "Between two nodes traffic of a rail stays on one switch. From four nodes on it crosses switches: "
        "routes collide, or rails are mixed. The same adapters with a fraction of the bandwidth mean the "
        "fabric, not the kernel. Test pairs of nodes, rail by rail, and adaptive routing.",
    .source = "public report DeepEP 493",
    .check = check,
};

}  // namespace moetax::doctor
