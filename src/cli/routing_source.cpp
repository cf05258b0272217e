#include "cli/routing_source.h"

#include <fmt/format.h>

#include <cstdlib>

namespace moetax::cli {
namespace {

struct CountsSpec {
  std::string path;
  std::optional<int> layer;
};

// FILE or FILE:LAYER; a last part that is not a number belongs to the file's name.
CountsSpec parse_counts_spec(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon + 1 == text.size()) return {text, {}};
  char* end = nullptr;
  const long layer = std::strtol(text.c_str() + colon + 1, &end, 10);
  if (*end != '\0' || layer < 0 || layer > 1 << 20) return {text, {}};
  return {text.substr(0, colon), static_cast<int>(layer)};
}

Result<std::vector<double>> read_counts(const CountsSpec& spec, int experts) {
  MOETAX_ASSIGN(const std::vector<ExpertCounts> layers, read_expert_counts(spec.path, experts));
  MOETAX_ASSIGN(ExpertCounts chosen, pick_layer(layers, spec.layer, spec.path));
  return std::move(chosen.counts);
}

Result<std::vector<double>> zipf(const std::string& exponent, int experts, std::uint64_t seed) {
  char* end = nullptr;
  const double s = std::strtod(exponent.c_str(), &end);
  if (exponent.empty() || *end != '\0' || !(s >= 0 && s <= 10)) {
    return fail(ErrorCode::kUsage, fmt::format("--routing zipf:{}: expected an exponent from 0 to 10", exponent));
  }
  return zipf_counts(experts, s, seed);
}

}  // namespace

Result<RoutingSource> RoutingSource::open(const std::string& spec, int experts, int topk, std::uint64_t seed) {
  RoutingSource source;
  source.topk_ = topk;
  source.seed_ = seed;
  const std::size_t colon = spec.find(':');
  const std::string kind = spec.substr(0, colon);
  const std::string rest = colon == std::string::npos ? "" : spec.substr(colon + 1);
  if (spec == "router") return source;
  if (spec == "uniform") {
    source.counts_.assign(static_cast<std::size_t>(experts), 1.0);
  } else if (kind == "zipf" && colon != std::string::npos) {
    MOETAX_ASSIGN(source.counts_, zipf(rest, experts, seed));
  } else if (kind == "counts" && !rest.empty()) {
    MOETAX_ASSIGN(source.counts_, read_counts(parse_counts_spec(rest), experts));
  } else if (kind == "tokens" && !rest.empty()) {
    MOETAX_ASSIGN(source.trace_, RoutingTrace::read(rest, experts, topk));
  } else {
    return fail(
        ErrorCode::kUsage,
        fmt::format("--routing {}: expected router, uniform, zipf:S, counts:FILE[:LAYER] or tokens:FILE", spec));
  }
  return source;
}

void RoutingSource::fill(int layer_idx, std::int64_t first, std::int64_t count, RoutingTable& out) const {
  if (trace_) {
    trace_->fill(first, count, out);
  } else {
    sample_routing(counts_, topk_, seed_ + static_cast<std::uint64_t>(layer_idx), first, count, out);
  }
}

}  // namespace moetax::cli
