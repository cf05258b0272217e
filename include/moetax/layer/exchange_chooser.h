// Chooses how rows travel between nodes while layers run: from measured costs and the traffic there is, and again when
// links, ranks or traffic change.
//
//   ExchangeChooser chooser(costs, {}, observer);         // costs: on rank 0; it hears what its ExpertParallel reports
//   auto parallel = ExpertParallel::create(world, {..., .observer = &chooser});
//   layer.forward(...);
//   chooser.review(*parallel, {{&layer.routing()}});      // between steps, when no handle or layout is alive
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "moetax/base/clock.h"
#include "moetax/base/observer.h"
#include "moetax/cost/exchange_policy.h"
#include "moetax/layer/expert_parallel.h"

namespace moetax {

// Where the ranks of the world sit, and which of them exchange with each other.
RankPlaces places_of(ExpertParallel& parallel);

// Collective over the world: what a step with this routing brings where. On rank 0 the traffic, nullopt elsewhere.
// Several layers: the mean of theirs.
Result<std::optional<Traffic>> gather_traffic(ExpertParallel& parallel, std::span<const RoutingTable* const> layers);

// What a rank measured of its steps since the last review, all of them together; nothing where it measured none.
struct TaxSeen {
  std::int64_t tax_ns = 0, step_ns = 0;
};

// Passes on to `observer` (may be null) what it hears. From the rank's thread only.
class ExchangeChooser final : public Observer {
 public:
  // Rank 0 decides and needs costs that cannot_predict() is content with; the others' are not looked at.
  ExchangeChooser(std::optional<MachineCosts> costs, const ExchangePolicyOptions& options, Observer* observer);

  // Collective over the world, after the same step on all ranks, while no handle or layout is alive (kUsage otherwise,
  // as Exchange::set_algorithm says). `layers` are the last routings of this rank's layers, at least one; `tax` counts
  // where a limit is set on it. Two small gathers. What was decided, if anything; `why` on rank 0 only.
  Result<std::optional<ExchangeDecision>> review(ExpertParallel& parallel, std::span<const RoutingTable* const> layers,
                                                 const TaxSeen& tax = {});

  void enter(Part part, const char* name) override;
  void leave() override;
  void waited(const WaitRecord& wait) override;
  void exchanged(const ExchangeRecord& exchange) override;
  void flowed(const FlowRecord& flow) override;

 private:
  static constexpr std::size_t kMaxCalls = 64;  // kept since the last review, half of them dispatches

  std::optional<ExchangePolicy> policy_;
  Observer* observer_;
  std::vector<Period> calls_;  // dispatch, combine, dispatch, combine, ...: of the first steps since the last review
};

}  // namespace moetax
