#include "cli/routing_source.h"

#include "cli/bench_specs.h"

namespace moetax::cli {
namespace {

Result<std::vector<double>> read_counts(const RoutingSpec& spec, int experts) {
  MOETAX_ASSIGN(const std::vector<ExpertCounts> layers, read_expert_counts(spec.path, experts));
  MOETAX_ASSIGN(ExpertCounts chosen, pick_layer(layers, spec.layer, spec.path));
  return std::move(chosen.counts);
}

}  // namespace

Result<RoutingSource> RoutingSource::open(const std::string& text, int experts, int topk, std::uint64_t seed) {
  MOETAX_ASSIGN(const RoutingSpec spec, parse_routing_spec(text));
  RoutingSource source;
  source.topk_ = topk;
  source.seed_ = seed;
  switch (spec.kind) {
    case RoutingSpec::Kind::kRouter:
      break;
    case RoutingSpec::Kind::kUniform:
      source.counts_.assign(static_cast<std::size_t>(experts), 1.0);
      break;
    case RoutingSpec::Kind::kZipf:
      source.counts_ = zipf_counts(experts, spec.exponent, seed);
      break;
    case RoutingSpec::Kind::kCounts: {
      MOETAX_ASSIGN(source.counts_, read_counts(spec, experts));
      break;
    }
    case RoutingSpec::Kind::kTokens: {
      MOETAX_ASSIGN(source.trace_, RoutingTrace::read(spec.path, experts, topk));
      break;
    }
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
