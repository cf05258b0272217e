#include <fmt/format.h>

#include "doctor/rules/rules.h"
#include "moetax/base/units.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const LogEvent* rate = nullptr;
  for (const LogEvent* event : facts.log->of(LogKind::kCacheHits)) {
    if (!event->numbers.empty() && event->numbers[0] > 0 && event->numbers[0] <= 100) rate = event;
  }
  if (!rate || rate->numbers[0] > 99) return;
  const double misses = 1 - rate->numbers[0] / 100;
  Finding& f = out.add(rule, fmt::format("{:.1f} % of the experts a token needs come from host memory", 100 * misses));
  f.cause =
      "every miss is copied before its layer can go on; computing it takes microseconds, so nothing hides the copy.";
  f.evidence = {rate->at};
  if (facts.model && facts.model->topk > 0 && facts.model->inter > 0 && facts.model->moe_layers > 0) {
    const double expert =
        3.0 * static_cast<double>(facts.model->hidden) * static_cast<double>(facts.model->inter) * kBf16Bytes;
    f.cost.bytes = misses * facts.model->topk * facts.model->moe_layers * expert;
    f.cost.text = fmt::format("{} a token with 16-bit weights", units::bytes_text(*f.cost.bytes));
    if (const double gbs = facts.host_gbs(); gbs > 0) {
      f.cost.us = *f.cost.bytes / (gbs * 1e3);
      f.cost.text += fmt::format(", {} at {:.3g} GB/s: at most {:.1f} tokens/s", units::time_text(*f.cost.us), gbs,
                                 1e6 / *f.cost.us);
    } else {
      f.cost.text += "; no time without the speed of the host link (nvbandwidth)";
    }
  } else {
    f.cost = cannot_price("the model's config.json and nvbandwidth's output");
  }
  f.fix = "smaller weights (4 bits) or a larger cache; or compute misses on the host: llama-server --cpu-moe";
  f.confidence = Confidence::kLikely;
}

}  // namespace

const Rule kExpertCacheMisses = {
    .id = "expert-cache-misses",
    .severity = Severity::kNote,
    .title = "a cache of experts whose misses bound every token",
    .explanation =
        "With experts in host memory and a cache on the GPU a token waits for every miss. A hit rate near 90 % sounds "
        "good and is not: the tenth that misses moves many times the bytes that the GPU reads from its own memory in "
        "the same time. Overlap cannot hide it, computing takes microseconds there. Only fewer bytes help: a larger "
        "cache, smaller weights, or computing the missed experts on the host.",
    .source = "public reports imp 1365, 1377",
    .check = check,
};

}  // namespace moetax::doctor
