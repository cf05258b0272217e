#include <fmt/format.h>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const auto first_step = facts.log->of(LogKind::kFirstStep);
  if (first_step.empty()) return;
  for (const LogEvent* event : facts.log->of(LogKind::kMemoryUse)) {
    if (event->numbers.size() != 2 || event->numbers[1] <= 0) continue;
    const double left = event->numbers[1] - event->numbers[0];
    if (left < 0 || left / event->numbers[1] > 0.12) continue;
    Finding& f = out.add(rule, fmt::format("the first optimizer step begins with {:.1f} GiB of GPU memory left", left));
    f.cause = "a group that has not been used before opens its communicator now, and cannot get the memory.";
    f.evidence = {first_step.front()->at, event->at};
    f.cost.text = fmt::format("the run stops without a message at the first step; {:.0f} of {:.0f} GiB are in use",
                              event->numbers[0], event->numbers[1]);
    f.fix = "torch.distributed.barrier(group=g) for every group right after it is made, before the model is";
    f.confidence = Confidence::kPossible;
    return;
  }
}

}  // namespace

const Rule kLazyCommunicator = {
    .id = "lazy-communicator",
    .severity = Severity::kWarning,
    .title = "a process group that opens its communicator when memory is full",
    .explanation =
        "NCCL opens a communicator at the first collective of a group, and needs some GiB of GPU memory for "
        "it. A group that is first used in the optimizer step finds the memory taken by model and "
        "activations; its bootstrap waits without a message, and NCCL_TIMEOUT does not cover it. A barrier on "
        "every group right after it is made opens them while there is room.",
    .source = "public report ms-swift 9486",
    .check = check,
};

}  // namespace moetax::doctor
