// A text taken as counts and as routes gives values in range, or an error of one line.

#include <cmath>

#include "fuzz.h"
#include "moetax/route/load_file.h"

namespace moetax::fuzz {
namespace {

constexpr int kExperts = 8;
constexpr int kTopK = 2;

void fuzz_counts(std::string_view text) {
  const auto layers = parse_expert_counts(text, "load.csv", kExperts);
  if (!layers) return require_good_message(layers.error(), "load.csv:");
  require(!layers->empty());
  RoutingTable table;
  for (const ExpertCounts& layer : *layers) {
    require(layer.counts.size() == kExperts);
    for (const double count : layer.counts) require(std::isfinite(count) && count >= 0);
  }
  sample_routing(layers->front().counts, kTopK, 1, 0, 4, table);
}

void fuzz_routes(std::string_view text) {
  const auto trace = RoutingTrace::parse(text, "routes.txt", kExperts, kTopK);
  if (!trace) return require_good_message(trace.error(), "routes.txt:");
  RoutingTable table;
  trace->fill(trace->tokens() - 1, 2, table);
  for (std::int64_t t = 0; t < table.tokens(); ++t) {
    require(table.expert()(t, 0) != table.expert()(t, 1));
    for (int k = 0; k < kTopK; ++k) {
      require(table.expert()(t, k) >= 0 && table.expert()(t, k) < kExperts);
      require(std::isfinite(table.weight()(t, k)));
    }
  }
}

}  // namespace
}  // namespace moetax::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = moetax::fuzz::as_text(data, size);
  moetax::fuzz::fuzz_counts(text);
  moetax::fuzz::fuzz_routes(text);
  return 0;
}
