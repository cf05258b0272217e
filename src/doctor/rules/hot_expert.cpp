#include <fmt/format.h>

#include <algorithm>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const int ranks = facts.job.ep ? facts.job.ep->value : 0;
  if (ranks < 2) return;
  for (const LoadFacts& load : facts.all_loads()) {
    const ExpertCounts* worst = nullptr;
    double worst_over = 0;
    for (const ExpertCounts& layer : load.layers) {
      double sum = 0;
      for (const double count : layer.counts) sum += count;
      const double largest = *std::max_element(layer.counts.begin(), layer.counts.end());
      const double over = sum > 0 ? largest / (sum / ranks) : 0;
      if (over > worst_over) {
        worst_over = over;
        worst = &layer;
      }
    }
    // With as many ranks as experts this is ordinary imbalance.
    if (!worst || worst_over < 1.15 || load.experts < 2 * ranks || !load.all_listed) continue;
    const auto hottest = std::max_element(worst->counts.begin(), worst->counts.end()) - worst->counts.begin();
    Finding& f = out.add(rule, fmt::format("expert {} of layer {} alone has {:.2f}x the mean load of a rank", hottest,
                                           worst->layer, worst_over));
    f.cause =
        fmt::format("one of {} experts against 1/{} of all rows: no placement evens that out.", load.experts, ranks);
    f.evidence = {{load.file, 0, fmt::format("layer {}, expert {}", worst->layer, hottest)}, facts.job.ep->at};
    f.cost.text =
        fmt::format("its rank needs at least {:.0f} % longer than the mean in that layer", 100 * (worst_over - 1));
    f.fix = "redundant experts: --ep-num-redundant-experts 32 (SGLang), \"num_redundant_experts\": 32 (vLLM)";
    f.confidence = Confidence::kLikely;
  }
}

}  // namespace

const Rule kHotExpert = {
    .id = "hot-expert",
    .severity = Severity::kWarning,
    .title = "one expert with more rows than a whole rank should have",
    .explanation =
        "Placement moves experts between ranks and cannot cut one. An expert that has more rows than the mean "
        "of a rank sets the pace wherever it lies; it has to be replicated.",
    .source = "public report megablocks 100",
    .check = check,
};

}  // namespace moetax::doctor
