#include <fmt/format.h>

#include <algorithm>

#include "doctor/rules/rules.h"
#include "moetax/base/units.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  for (const BillFacts& bill : facts.all_bills()) {
    if (!bill.from_traces || !bill.hidden_us || !bill.exposed_us || !bill.compute_us || bill.step_us <= 0) continue;
    if (*bill.hidden_us > 0.05 * (*bill.hidden_us + *bill.exposed_us) || *bill.exposed_us < 0.05 * bill.step_us)
      continue;
    const double transfer = bill.wait_us ? std::max(0.0, *bill.exposed_us - *bill.wait_us) : *bill.exposed_us;
    const double gain = std::min(transfer, *bill.compute_us);
    if (gain < 0.02 * bill.step_us) continue;
    Finding& f = out.add(rule, fmt::format("{} of communication run in series, at most {} of it can be hidden",
                                           units::time_text(*bill.exposed_us), units::time_text(gain)));
    f.cause = bill.wait_us
                  ? fmt::format("{} of it is waiting, which overlap does not shorten.", units::time_text(*bill.wait_us))
                  : "waiting and transfer cannot be told apart in this bill.";
    f.evidence = {
        {bill.file, 0,
         fmt::format("exposed {}, hidden {}", units::time_text(*bill.exposed_us), units::time_text(*bill.hidden_us))}};
    f.cost.us = gain;
    f.cost.share = gain / bill.step_us;
    f.cost.text = fmt::format("{} of a step, {:.1f} %", units::time_text(gain), 100 * *f.cost.share);
    f.fix = facts.job.is("sglang")     ? "--enable-two-batch-overlap"
            : facts.job.is("vllm")     ? "--enable-dbo"
            : facts.job.is("megatron") ? "--overlap-moe-expert-parallel-comm"
                                       : "run shared experts, or the other half of the batch, beside the exchange";
    f.confidence = Confidence::kPossible;
  }
}

}  // namespace

const Rule kOverlapPossible = {
    .id = "overlap-possible",
    .severity = Severity::kNote,
    .title = "an exchange in series that compute could hide",
    .explanation =
        "Communication that runs beside no compute is paid in full. Shared experts, or the other half of a batch, can "
        "run meanwhile; what that wins is bounded by the transfer itself, waiting for late ranks not counted, and by "
        "the compute there is.",
    .source = "public report pegainfer 228",
    .check = check,
};

}  // namespace moetax::doctor
