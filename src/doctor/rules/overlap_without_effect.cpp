#include <fmt/format.h>

#include "doctor/rules/rules.h"
#include "moetax/base/units.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const Settings::Names kOverlap = {
      "overlap_moe_expert_parallel_comm", "enable_two_batch_overlap",  "enable_dbo",
      "enable_single_batch_overlap",      "moe_shared_expert_overlap", "FMOE_FASTER_SCHEDULE_ENABLE"};
  if (!facts.job.settings.on(kOverlap)) return;
  for (const BillFacts& bill : facts.all_bills()) {
    if (!bill.hidden_us || !bill.exposed_us || bill.step_us <= 0 || *bill.exposed_us < 0.02 * bill.step_us) continue;
    const double all = *bill.hidden_us + *bill.exposed_us;
    if (*bill.hidden_us > 0.05 * all) continue;
    Finding& f = out.add(rule, fmt::format("{:.0f} % of the communication is hidden, although overlap is on",
                                           100 * *bill.hidden_us / all));
    f.cause =
        "compute and exchange run one after the other: the same stream, one queue, or the host waits between them.";
    f.evidence = {
        facts.job.settings.where(kOverlap),
        {bill.file, 0,
         fmt::format("exposed {}, hidden {}", units::time_text(*bill.exposed_us), units::time_text(*bill.hidden_us))}};
    f.cost.us = *bill.exposed_us;
    f.cost.share = *bill.exposed_us / bill.step_us;
    f.cost.text = fmt::format("{} of a step at most, {:.1f} %", units::time_text(*f.cost.us), 100 * *f.cost.share);
    f.fix =
        "CUDA_DEVICE_MAX_CONNECTIONS=32; moetax analyze --trace merged.json: are both on one stream, or is there a "
        "synchronisation between them?";
    f.confidence = Confidence::kLikely;
  }
}

}  // namespace

const Rule kOverlapWithoutEffect = {
    .id = "overlap-without-effect",
    .severity = Severity::kWarning,
    .title = "overlap is switched on and hides nothing",
    .explanation =
        "A schedule that overlaps the exchange shows in a trace: communication beside compute on another stream. If a "
        "bill hides nothing although the flag is on, both run on one stream, one hardware queue, or a synchronisation "
        "with the host stands between them; the splitting costs its launches and brings nothing.",
    .source = "public report FastMoE 168",
    .check = check,
};

}  // namespace moetax::doctor
