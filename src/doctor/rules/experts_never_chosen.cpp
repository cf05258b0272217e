#include <fmt/format.h>

#include <algorithm>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  for (const LoadFacts& load : facts.all_loads()) {
    int never = 0, first_layer = -1;
    std::ptrdiff_t first = 0;
    for (const ExpertCounts& layer : load.layers) {
      double sum = 0;
      for (const double count : layer.counts) sum += count;
      const auto zeros = std::count(layer.counts.begin(), layer.counts.end(), 0.0);
      // A table that leaves most experts out is a part of one.
      if (sum < 100.0 * load.experts || zeros * 4 > load.experts) continue;
      if (zeros > 0 && first_layer < 0) {
        first_layer = layer.layer;
        first = std::find(layer.counts.begin(), layer.counts.end(), 0.0) - layer.counts.begin();
      }
      never += static_cast<int>(zeros);
    }
    if (never == 0 || !load.all_listed) continue;
    const std::size_t all = load.layers.size() * static_cast<std::size_t>(load.experts);
    Finding& f = out.add(rule, fmt::format("{} of {} experts were never chosen", never, all));
    f.cause = fmt::format("the first is expert {} of layer {}.", first, first_layer);
    f.evidence = {{load.file, 0, fmt::format("layer {}, expert {}: 0", first_layer, first)}};
    const double bytes = facts.model && facts.model->inter > 0
                             ? never * 3.0 * static_cast<double>(facts.model->hidden * facts.model->inter) * kBf16Bytes
                             : 0;
    f.cost.text = bytes > 0 ? fmt::format("{:.2f} GiB of weights that do nothing for these tokens", bytes * 0x1p-30)
                            : "cannot be priced without the model's config.json";
    f.fix =
        "training: a balance loss or a selection bias (--moe-router-enable-expert-bias); serving: check that the load "
        "is of "
        "enough tasks before dropping any";
    f.confidence = Confidence::kLikely;
  }
}

}  // namespace

const Rule kExpertsNeverChosen = {
    .id = "experts-never-chosen",
    .severity = Severity::kWarning,
    .title = "experts that no token chose",
    .explanation =
        "An expert without tokens has no gradient and does not come back by itself; its memory is taken all "
        "the same. Few tokens, or tokens of one task, can leave experts idle by chance: the rule asks for at "
        "least a hundred tokens for each expert, and for a load that lists every expert.",
    .source = "load balance losses as in arXiv:2101.03961; claims tested in the router lab",
    .check = check,
};

}  // namespace moetax::doctor
