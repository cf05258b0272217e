#include <fmt/format.h>

#include <algorithm>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

std::string counts_text(const std::vector<double>& counts) {
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(counts.size(), 16); ++i) {
    text += fmt::format("{}{:.0f}", i > 0 ? "/" : "", counts[i]);
  }
  return text;
}

void check(const Facts& facts, const Rule& rule, Findings& out) {
  for (const LogEvent* event : facts.log->of(LogKind::kRankCounts)) {
    if (event->op != "batches" || event->numbers.size() < 2) continue;
    const auto [least, most] = std::minmax_element(event->numbers.begin(), event->numbers.end());
    if (*least == *most) continue;
    Finding& f = out.add(rule, fmt::format("ranks have {} batches", counts_text(event->numbers)));
    f.cause = fmt::format(
        "the last {:.0f} forward passes are entered by some ranks only; their exchange waits for the others.",
        *most - *least);
    f.evidence = {event->at};
    f.cost.text = "the run stops at the end of the data";
    f.fix = "drop_last=True for training; for evaluation pad every rank to the largest number of batches and mask";
    f.confidence = Confidence::kCertain;
    return;
  }
}

}  // namespace

const Rule kUnequalBatches = {
    .id = "unequal-batches",
    .severity = Severity::kError,
    .title = "expert-parallel ranks run different numbers of batches",
    .explanation =
        "Each forward of an expert-parallel layer is a collective. Ranks with more batches than their peers "
        "wait in the last ones for ranks that have ended. A collective is issued even with an expert-parallel "
        "size of 1 where the capacity is agreed on over all ranks.",
    .source = "public reports DeepSpeed 7141, 6634",
    .check = check,
};

}  // namespace moetax::doctor
