#include "moetax/layer/exchange_chooser.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "moetax/transport/node_map.h"

namespace moetax {
namespace {

RankPlaces places_of(ExpertParallel& parallel) {
  const Communicator& world = parallel.world();
  const NodeMap nodes(world);
  RankPlaces places;
  for (Rank rank = 0; rank < world.size(); ++rank) places.node.push_back(nodes.node_of(rank));
  places.group = parallel.options().ep_size;
  return places;
}

// Who in the world holds each expert for this rank.
std::vector<Rank> owners(ExpertParallel& parallel, const RankPlaces& places) {
  const Rank first = places.first_of_group(parallel.world().rank());
  std::vector<Rank> owner;
  for (ExpertId expert = 0; expert < parallel.options().experts; ++expert) {
    owner.push_back(first + parallel.placement().owner(expert));
  }
  return owner;
}

Deadline deadline_of(ExpertParallel& parallel) {
  return Deadline::in_seconds(parallel.options().deadline_s);
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The median over calls of a dispatch and its combine, each the slowest group's span.
std::optional<double> seen_us(std::span<const std::vector<std::byte>> calls, int group) {
  std::vector<std::vector<Period>> of_rank;
  std::size_t least = SIZE_MAX;
  for (const std::vector<std::byte>& bytes : calls) {
    std::vector<Period>& periods = of_rank.emplace_back(bytes.size() / sizeof(Period));
    if (!periods.empty()) std::memcpy(periods.data(), bytes.data(), periods.size() * sizeof(Period));
    least = std::min(least, periods.size());
  }
  std::vector<double> us;
  for (std::size_t call = 0; call + 1 < least; call += 2) {
    double both = 0;
    for (const std::size_t i : {call, call + 1}) {
      double slowest = 0;
      for (std::size_t first = 0; first < of_rank.size(); first += static_cast<std::size_t>(group)) {
        std::vector<Period> periods;
        for (std::size_t r = first; r < first + static_cast<std::size_t>(group); ++r) periods.push_back(of_rank[r][i]);
        slowest = std::max(slowest, span_us(periods));
      }
      both += slowest;
    }
    us.push_back(both);
  }
  return us.empty() ? std::nullopt : std::optional(median(std::move(us)));
}

// What rank 0 tells the others.
struct Verdict {
  std::int32_t decided = 0, from = 0, to = 0, padding = 0;
};

}  // namespace

Result<std::optional<Traffic>> gather_traffic(ExpertParallel& parallel, std::span<const RoutingTable* const> layers) {
  RankPlaces places = places_of(parallel);
  const std::vector<Rank> owner = owners(parallel, places);
  std::vector<std::int64_t> mine(source_size(places));
  for (const RoutingTable* routing : layers) {
    const std::vector<std::int64_t> counts = count_source(places, owner, routing->expert());
    for (std::size_t i = 0; i < mine.size(); ++i) mine[i] += counts[i];
  }
  // Rounded up: what few tokens bring must not become nothing.
  const auto num_layers = static_cast<std::int64_t>(layers.size());
  for (std::int64_t& count : mine) count = (count + num_layers - 1) / num_layers;
  MOETAX_ASSIGN(const auto all,
                parallel.over_world().gather_bytes(std::as_bytes(std::span(mine)), deadline_of(parallel)));
  if (parallel.world().rank() != 0) return std::optional<Traffic>();
  std::vector<std::int64_t> sources(mine.size() * all.size());
  for (std::size_t r = 0; r < all.size(); ++r) {
    std::memcpy(sources.data() + r * mine.size(), all[r].data(), std::min(all[r].size(), mine.size() * sizeof mine[0]));
  }
  const ExpertParallelOptions& options = parallel.options();
  Traffic traffic = Traffic::of_sources(std::move(places), options.experts, options.topk, sources);
  if (options.fp32_sums) traffic.sum_scale = 4.0 / static_cast<double>(size_of(options.dtype));
  return std::optional(std::move(traffic));
}

ExchangeChooser::ExchangeChooser(std::optional<MachineCosts> costs, const ExchangePolicyOptions& options,
                                 Observer* observer)
    : observer_(observer) {
  if (costs) policy_.emplace(std::move(*costs), options);
  calls_.reserve(kMaxCalls);
}

Result<std::optional<ExchangeDecision>> ExchangeChooser::review(ExpertParallel& parallel,
                                                                std::span<const RoutingTable* const> layers,
                                                                std::optional<double> tax_share) {
  Collectives& world = parallel.over_world();
  for (Period& call : calls_) {
    call.start_ns -= parallel.world().clock_offset_ns(0);
    call.end_ns -= parallel.world().clock_offset_ns(0);
  }
  MOETAX_ASSIGN(const auto calls, world.gather_bytes(std::as_bytes(std::span(calls_)), deadline_of(parallel)));
  calls_.clear();
  MOETAX_ASSIGN(const auto traffic, gather_traffic(parallel, layers));
  std::optional<ExchangeDecision> decision;
  if (traffic && policy_) {
    MOETAX_ASSIGN(decision, decide(parallel, *traffic, calls, tax_share));
  }
  Verdict verdict;
  if (decision) verdict = {1, static_cast<std::int32_t>(decision->from), static_cast<std::int32_t>(decision->to)};
  std::vector<Verdict> verdicts(static_cast<std::size_t>(parallel.world().size()));
  MOETAX_TRY(world.all_gather("the choice of an exchange", std::as_bytes(std::span(&verdict, 1)),
                              std::as_writable_bytes(std::span(verdicts)), deadline_of(parallel)));
  verdict = verdicts[0];
  if (verdict.decided == 0) return std::optional<ExchangeDecision>();
  MOETAX_TRY(parallel.exchange().set_algorithm(static_cast<ExchangeAlgorithm>(verdict.to)));
  if (!decision) {
    decision =
        ExchangeDecision{static_cast<ExchangeAlgorithm>(verdict.from), static_cast<ExchangeAlgorithm>(verdict.to), {}};
  }
  return decision;
}

Result<std::optional<ExchangeDecision>> ExchangeChooser::decide(ExpertParallel& parallel, const Traffic& traffic,
                                                                std::span<const std::vector<std::byte>> calls,
                                                                std::optional<double> tax_share) {
  const double row_bytes =
      static_cast<double>(parallel.options().hidden) * static_cast<double>(size_of(parallel.options().dtype));
  return policy_->review(traffic, row_bytes, parallel.exchange().algorithm(),
                         {seen_us(calls, traffic.places.group), tax_share});
}

void ExchangeChooser::enter(Part part, const char* name) {
  if (observer_) observer_->enter(part, name);
}
void ExchangeChooser::leave() {
  if (observer_) observer_->leave();
}
void ExchangeChooser::waited(const WaitRecord& wait) {
  if (observer_) observer_->waited(wait);
}

void ExchangeChooser::flowed(const FlowRecord& flow) {
  if (observer_) observer_->flowed(flow);
}

// Dispatches stand at even places; whatever lies between (mirrors, reductions) is not looked at.
void ExchangeChooser::exchanged(const ExchangeRecord& exchange) {
  if (observer_) observer_->exchanged(exchange);
  const std::string_view name = exchange.name;
  const bool due = name == (calls_.size() % 2 == 0 ? "dispatch" : "combine");
  if (due && calls_.size() < kMaxCalls) calls_.push_back({exchange.start_ns, exchange.end_ns});
}

}  // namespace moetax
