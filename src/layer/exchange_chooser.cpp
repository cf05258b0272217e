#include "moetax/layer/exchange_chooser.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "moetax/base/statistics.h"
#include "moetax/transport/node_map.h"

namespace moetax {
namespace {

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

// What a rank brings to a review.
struct Seen {
  TaxSeen tax;
  std::vector<Period> calls;

  std::vector<std::byte> to_bytes() const {
    std::vector<std::byte> bytes(sizeof tax + calls.size() * sizeof(Period));
    std::memcpy(bytes.data(), &tax, sizeof tax);
    if (!calls.empty()) std::memcpy(bytes.data() + sizeof tax, calls.data(), calls.size() * sizeof(Period));
    return bytes;
  }
  static Seen of_bytes(std::span<const std::byte> bytes) {
    Seen seen;
    std::memcpy(&seen.tax, bytes.data(), sizeof seen.tax);
    seen.calls.resize((bytes.size() - sizeof seen.tax) / sizeof(Period));
    if (!seen.calls.empty()) {
      std::memcpy(seen.calls.data(), bytes.data() + sizeof seen.tax, seen.calls.size() * sizeof(Period));
    }
    return seen;
  }
};

// The median over calls of a dispatch and its combine, each the slowest group's span.
std::optional<double> seen_us(std::span<const Seen> ranks, int group) {
  const auto fewer = [](const Seen& a, const Seen& b) { return a.calls.size() < b.calls.size(); };
  const std::size_t least = std::min_element(ranks.begin(), ranks.end(), fewer)->calls.size();
  std::vector<double> us;
  std::vector<Period> call(ranks.size());
  for (std::size_t pair = 0; pair + 1 < least; pair += 2) {
    double both = 0;
    for (const std::size_t i : {pair, pair + 1}) {
      for (std::size_t r = 0; r < ranks.size(); ++r) call[r] = ranks[r].calls[i];
      both += slowest_span_us(call, static_cast<std::size_t>(group));
    }
    us.push_back(both);
  }
  return us.empty() ? std::nullopt : std::optional(median(std::move(us)));
}

// Of all ranks' steps together.
std::optional<double> tax_share(std::span<const Seen> ranks) {
  TaxSeen all;
  for (const Seen& seen : ranks) {
    all.tax_ns += seen.tax.tax_ns;
    all.step_ns += seen.tax.step_ns;
  }
  if (all.step_ns <= 0) return std::nullopt;
  return static_cast<double>(all.tax_ns) / static_cast<double>(all.step_ns);
}

// What rank 0 tells the others.
struct Verdict {
  std::int32_t decided = 0, from = 0, to = 0, padding = 0;
};

}  // namespace

RankPlaces places_of(ExpertParallel& parallel) {
  const NodeMap nodes(parallel.world());
  std::vector<int> node;
  for (const Rank rank : parallel.world().everyone()) node.push_back(nodes.node_of(rank));
  return {std::move(node), parallel.options().ep_size};
}

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
                                                                const TaxSeen& tax) {
  Collectives& world = parallel.over_world();
  for (Period& call : calls_) {
    call.start_ns -= parallel.world().clock_offset_ns(0);
    call.end_ns -= parallel.world().clock_offset_ns(0);
  }
  MOETAX_ASSIGN(const auto handed_in, world.gather_bytes(Seen{tax, calls_}.to_bytes(), deadline_of(parallel)));
  calls_.clear();
  MOETAX_ASSIGN(const auto traffic, gather_traffic(parallel, layers));
  std::optional<ExchangeDecision> decision;
  if (traffic && policy_) {
    std::vector<Seen> seen;
    for (const std::vector<std::byte>& bytes : handed_in) seen.push_back(Seen::of_bytes(bytes));
    const double row_bytes =
        static_cast<double>(parallel.options().hidden) * static_cast<double>(size_of(parallel.options().dtype));
    decision = policy_->review(*traffic, row_bytes, parallel.exchange().algorithm(),
                               {seen_us(seen, traffic->places.group()), tax_share(seen)});
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
