#include <fmt/format.h>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  for (const BillFacts& bill : facts.all_bills()) {
    for (const Finding& finding : bill.findings) {
      if (finding.title.empty()) continue;
      Finding& f = out.add(rule, finding.title);
      const std::string why = finding.cost.us ? "at most this of a step can be won" : "cannot be priced by this bill";
      f = finding;
      f.cost.text = finding.cost.us ? fmt::format("{:.0f} us: {}", *finding.cost.us, why) : why;
      if (f.fix.empty()) f.fix = "see docs/bill.md";
    }
  }
}

}  // namespace

const Rule kBillFinding = {
    .id = "bill-finding",
    .severity = Severity::kNote,
    .title = "what a bill says about itself",
    .explanation =
        "A bill of moetax bench carries findings of its own, with the gain each could bring at most. They are "
        "repeated here under their id with bill- before it, so that one report holds everything.",
    .source = "docs/bill.md",
    .check = check,
};

}  // namespace moetax::doctor
