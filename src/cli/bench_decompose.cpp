#include "cli/bench_decompose.h"

#include <cstring>
#include <utility>

#include "moetax/base/clock.h"
#include "moetax/base/statistics.h"

namespace moetax::cli {
namespace {

constexpr int kRounds = 7, kWarmUp = 1;

// By call of an exchange, one period per round.
using Rounds = std::vector<std::vector<Period>>;

Result<void> run_round(ExpertParallel& parallel, const RoutingTable& routing, ConstRows hidden, Rows out,
                       std::vector<Period>& dispatches, std::vector<Period>& combines) {
  const std::int64_t start = now_ns();
  MOETAX_ASSIGN(Dispatched sent, parallel.exchange().dispatch(hidden, routing));
  const std::int64_t middle = now_ns();
  std::memset(sent.batch.out.data, 0, sent.batch.out.bytes());
  const std::int64_t back = now_ns();
  MOETAX_TRY(parallel.exchange().combine(std::move(sent.handle), routing, {}, out));
  dispatches.push_back({start, middle});
  combines.push_back({back, now_ns()});
  return {};
}

// Collective: the median over rounds of the slowest group's span, on all ranks.
Result<double> median_span_us(ExpertParallel& parallel, std::vector<Period> mine) {
  for (Period& period : mine) {
    period.start_ns -= parallel.world().clock_offset_ns(0);
    period.end_ns -= parallel.world().clock_offset_ns(0);
  }
  std::vector<Period> all(mine.size() * static_cast<std::size_t>(parallel.world().size()));
  MOETAX_TRY(parallel.over_world().all_gather("decompose", std::as_bytes(std::span(mine)),
                                              std::as_writable_bytes(std::span(all)),
                                              Deadline::in_seconds(parallel.options().deadline_s)));
  std::vector<double> us;
  std::vector<Period> call(all.size() / mine.size());
  for (std::size_t round = 0; round < mine.size(); ++round) {
    for (std::size_t r = 0; r < call.size(); ++r) call[r] = all[r * mine.size() + round];
    us.push_back(slowest_span_us(call, static_cast<std::size_t>(parallel.options().ep_size)));
  }
  return median(std::move(us));
}

}  // namespace

Result<std::vector<BillDecomposition>> decompose(ExpertParallel& parallel, const RoutingTable& routing,
                                                 ConstRows hidden, Rows out, const MachineCosts* costs,
                                                 const std::optional<Traffic>& traffic) {
  const ExchangeAlgorithm before = parallel.exchange().algorithm();
  Rounds dispatches(kNumExchangeAlgorithms), combines(kNumExchangeAlgorithms);
  for (std::size_t i = 0; i < kNumExchangeAlgorithms; ++i) {
    MOETAX_TRY(parallel.exchange().set_algorithm(static_cast<ExchangeAlgorithm>(i)));
    for (int round = -kWarmUp; round < kRounds; ++round) {
      MOETAX_TRY(run_round(parallel, routing, hidden, out, dispatches[i], combines[i]));
      if (round < 0) {
        dispatches[i].clear();
        combines[i].clear();
      }
    }
  }
  MOETAX_TRY(parallel.exchange().set_algorithm(before));
  std::vector<BillDecomposition> table;
  for (std::size_t i = 0; i < kNumExchangeAlgorithms; ++i) {
    const auto algorithm = static_cast<ExchangeAlgorithm>(i);
    for (const ExchangeCall call : {ExchangeCall::kDispatch, ExchangeCall::kCombine}) {
      MOETAX_ASSIGN(const double us, median_span_us(parallel, goes_back(call) ? combines[i] : dispatches[i]));
      if (!traffic || !costs) continue;
      table.push_back({to_string(algorithm), to_string(call),
                       predict_call(*costs, *traffic, call, algorithm, static_cast<double>(hidden.row_bytes())), us});
    }
  }
  return table;
}

}  // namespace moetax::cli
