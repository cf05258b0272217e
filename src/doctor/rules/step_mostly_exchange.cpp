#include <fmt/format.h>

#include "doctor/rules/rules.h"
#include "moetax/base/units.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  for (const BillFacts& bill : facts.all_bills()) {
    if (bill.step_us <= 0 || bill.tax_share < 0.5 || bill.tax_share > 1) continue;
    Finding& f = out.add(rule, fmt::format("{:.0f} % of the step are exchange and waiting", 100 * bill.tax_share));
    f.cause = bill.compute_us ? fmt::format("compute is {} of {}.", units::time_text(*bill.compute_us),
                                            units::time_text(bill.step_us))
                              : fmt::format("of a step of {}.", units::time_text(bill.step_us));
    f.evidence = {{bill.file, 0, fmt::format("tax.share {:.3f}", bill.tax_share)}};
    f.cost.share = bill.tax_share;
    f.cost.us = bill.tax_share * bill.step_us;
    f.cost.text = fmt::format("{} of a step; without any compute at all it would still take {:.0f} % of its time",
                              units::time_text(*f.cost.us), 100 * bill.tax_share);
    f.fix = "the exchange first: another backend, EP inside a node, FP8 dispatch; leave products and kernels alone";
    f.confidence = Confidence::kCertain;
  }
}

}  // namespace

const Rule kStepMostlyExchange = {
    .id = "step-mostly-exchange",
    .severity = Severity::kWarning,
    .title = "a step that is mostly exchange and waiting",
    .explanation =
        "Where exchange and waiting are more than half of a step, faster products cannot help: they are the smaller "
        "part. The exchange comes first: its backend, its groups and links, then the skew of the ranks. Only then "
        "kernels.",
    .source = "public reports marin 7668, 7670",
    .check = check,
};

}  // namespace moetax::doctor
