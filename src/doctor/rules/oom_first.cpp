#include <fmt/format.h>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const auto memory = facts.log->of(LogKind::kOutOfMemory);
  auto timeouts = facts.log->of(LogKind::kWatchdog);
  if (timeouts.empty()) timeouts = facts.log->of(LogKind::kDeepEpTimeout);
  if (memory.empty()) return;
  const bool follows = !timeouts.empty() && memory.front()->at.file == timeouts.front()->at.file &&
                       memory.front()->at.line < timeouts.front()->at.line;
  const std::string who = memory.front()->rank ? fmt::format("rank {}", *memory.front()->rank) : "a rank";
  Finding& f = out.add(rule, follows ? fmt::format("{} ran out of memory first, the time-outs come from that", who)
                                     : fmt::format("{} ran out of memory", who));
  f.cause =
      follows ? "its peers waited for it until their time was over." : "see the rank's load and the buffers it holds.";
  f.evidence = {memory.front()->at};
  if (follows) f.evidence.push_back(timeouts.front()->at);
  f.cost.text = "the run has stopped";
  f.fix =
      "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, a smaller micro-batch, or recomputation; and give the "
      "doctor the expert load of the first steps: one rank may receive many times the mean";
  f.confidence = Confidence::kCertain;
}

}  // namespace

const Rule kOomFirst = {
    .id = "oom-first",
    .severity = Severity::kError,
    .title = "one rank ran out of memory, the time-outs of the others follow from it",
    .explanation =
        "When a rank dies, its peers wait for it until their own time is over, and their messages come last "
        "and loudest. The first error in time is the one to look at.",
    .source = "rule of moetax; a rank that dies is the usual reason for the time-outs of all others",
    .check = check,
};

}  // namespace moetax::doctor
