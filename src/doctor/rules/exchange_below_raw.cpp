#include <fmt/format.h>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const LogEvent *raw = nullptr, *tuned = nullptr;
  for (const LogEvent* event : facts.log->of(LogKind::kRawLink)) {
    if (!event->numbers.empty() && (!raw || event->numbers[0] > raw->numbers[0])) raw = event;
  }
  for (const LogEvent* event : facts.log->of(LogKind::kTuned)) {
    if (!event->numbers.empty() && (!tuned || event->numbers[0] > tuned->numbers[0])) tuned = event;
  }
  if (!raw || !tuned || tuned->numbers[0] <= 0 || tuned->numbers[0] > 0.7 * raw->numbers[0]) return;
  const double lost = 1 - tuned->numbers[0] / raw->numbers[0];
  Finding& f =
      out.add(rule, fmt::format("{} reaches {:.3g} GB/s where a raw put has {:.3g}: {:.0f} % are lost above the "
                                "network",
                                tuned->op, tuned->numbers[0], raw->numbers[0], 100 * lost));
  f.cause = "the link itself is sound; queue pairs, SMs, chunk sizes or who starts the sends are not.";
  f.evidence = {raw->at, tuned->at};
  f.cost.text = fmt::format("the transfer takes {:.2f}x the time the link allows", 1 / (1 - lost));
  f.fix =
      "run the tuning test over more SMs and larger chunks (num_sms, nvl/rdma chunk sizes); is IBGDA in use "
      "(NVSHMEM_IB_ENABLE_IBGDA=1)?";
  f.confidence = Confidence::kLikely;
}

}  // namespace

const Rule kExchangeBelowRaw = {
    .id = "exchange-below-raw",
    .severity = Severity::kWarning,
    .title = "an exchange far below what the network carries raw",
    .explanation =
        "A raw put between two GPUs (NVSHMEM's shmem_put_bw, ib_write_bw) shows what adapter, switch and driver carry. "
        "An exchange that reaches much less over the same link loses it above: in the number of queue pairs and SMs, "
        "in the size of chunks, or because the CPU starts the sends. Cables and switches need not be looked at.",
    .source = "public report DeepEP 155",
    .check = check,
};

}  // namespace moetax::doctor
