// What calls of an exchange cost that links do not explain: agreeing and planning, and rows in a stream between nodes.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "cli/calibrate_links.h"
#include "cli/calibrate_turns.h"
#include "moetax/base/memory.h"
#include "moetax/exchange/exchange.h"
#include "moetax/transport/node_map.h"

namespace moetax::cli {
namespace {

constexpr std::int64_t kHidden = 2048;                        // bf16: rows of 4 KiB
constexpr std::int64_t kStreamBytes = std::int64_t{8} << 20;  // of a rank, at most
constexpr int kExpertsPerRank = 8, kTopK = 6;                 // of the calls without rows to speak of
constexpr std::int64_t kSlimHidden = 8;
constexpr std::int64_t kFewTokens = 512, kManyTokens = 4096;  // pushed rows, both

// An exchange to try calls on, with its tokens and routes. One expert per rank and K = 1: each token goes to one rank.
class CallMeter {
 public:
  static Result<CallMeter> create(Communicator& comm, std::int64_t max_tokens, std::int64_t hidden, int experts,
                                  int topk, double deadline_s) {
    MOETAX_ASSIGN(Turns made, Turns::create(comm, deadline_s));
    CallMeter meter(std::move(made));
    MOETAX_ASSIGN(
        Exchange exchange,
        Exchange::create(
            comm,
            {.max_tokens = max_tokens, .hidden = hidden, .experts = experts, .topk = topk, .deadline_s = deadline_s}));
    meter.exchange_ = std::make_unique<Exchange>(std::move(exchange));
    MOETAX_ASSIGN(meter.tokens_, PageBuffer::reserve(static_cast<std::size_t>(2 * max_tokens * hidden * 2 + 1)));
    std::fill_n(meter.tokens_.data(), max_tokens * hidden * 2, std::byte{1});
    meter.hidden_ = hidden;
    meter.out_ = meter.tokens_.data() + max_tokens * hidden * 2;
    return meter;
  }

  struct Times {
    double dispatch_us = 0, combine_us = 0;
  };

  // A dispatch and its combine, each from a meeting of all on.
  Result<Times> calls(const RoutingTable& routing, int turns) {
    Times times;
    std::vector<double> combines;
    const ConstRows tokens = rows(tokens_.data(), routing.tokens());
    std::optional<Dispatched> sent;
    MOETAX_ASSIGN(times.dispatch_us, turns_.median_of_slowest(turns, [&]() -> Result<double> {
      sent.reset();
      return time_us([&]() -> Result<void> {
        MOETAX_ASSIGN(sent, exchange_->dispatch(tokens, routing));
        return {};
      });
    }));
    sent.reset();
    MOETAX_ASSIGN(times.combine_us, turns_.median_of_slowest(turns, [&]() -> Result<double> {
      MOETAX_ASSIGN(Dispatched again, exchange_->dispatch(tokens, routing));
      MOETAX_TRY(turns_.meet());
      return time_us([&]() -> Result<void> {
        MOETAX_TRY(exchange_->combine(std::move(again.handle), routing, {}, rows(out_, routing.tokens())));
        return {};
      });
    }));
    return times;
  }

  // Rows along a known layout, without routing.
  Result<double> stream(const RoutingTable& routing, ExchangeAlgorithm algorithm, int turns) {
    MOETAX_TRY(exchange_->set_algorithm(algorithm));
    const ConstRows tokens = rows(tokens_.data(), routing.tokens());
    MOETAX_ASSIGN(Dispatched sent, exchange_->dispatch(tokens, routing));
    MOETAX_ASSIGN(const DispatchLayout layout,
                  exchange_->combine(std::move(sent.handle), routing, {}, rows(out_, routing.tokens())));
    return turns_.median_of_slowest(turns, [&]() -> Result<double> {
      return time_us([&]() -> Result<void> {
        MOETAX_ASSIGN(Dispatched again, exchange_->redispatch(layout, tokens));
        return exchange_->release(std::move(again.handle));
      });
    });
  }

 private:
  explicit CallMeter(Turns turns) : turns_(std::move(turns)) {}
  Rows rows(std::byte* data, std::int64_t count) const { return {data, DType::kBf16, count, hidden_}; }

  Turns turns_;
  std::int64_t hidden_ = 0;
  std::unique_ptr<Exchange> exchange_;
  PageBuffer tokens_;  // and the outputs behind them
  std::byte* out_ = nullptr;
};

// Every token to one rank of another node, to each as many.
RoutingTable to_far_ranks(const NodeMap& nodes, std::int64_t rows_each) {
  RoutingTable routing;
  routing.resize(rows_each * static_cast<std::int64_t>(nodes.far().size()), 1);
  std::int64_t token = 0;
  for (std::int64_t i = 0; i < rows_each; ++i) {
    for (const Rank peer : nodes.far()) {
      routing.expert()(token, 0) = peer;
      routing.weight()(token++, 0) = 1;
    }
  }
  return routing;
}

RoutingTable to_everywhere(std::int64_t tokens, int experts) {
  RoutingTable routing;
  const int topk = std::min(kTopK, experts);
  const std::int64_t apart = experts / topk;
  routing.resize(tokens, topk);
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (int k = 0; k < topk; ++k) {
      routing.expert()(t, k) = static_cast<std::int32_t>((t * 7 + k * apart) % experts);
      routing.weight()(t, k) = 1;
    }
  }
  return routing;
}

Result<void> measure_streams(Communicator& comm, const CalibrateProgress& progress, double meeting_us,
                             MachineCosts& machine) {
  const NodeMap nodes(comm);
  if (nodes.num_nodes() < 2) return {};
  const auto peers = static_cast<std::int64_t>(nodes.far().size());
  const std::int64_t most = std::max<std::int64_t>(4, kStreamBytes / (2 * kHidden) / (comm.size() - 1));
  MOETAX_ASSIGN(CallMeter meter, CallMeter::create(comm, most * peers, kHidden, comm.size(), 1, progress.deadline_s));
  for (const auto& [link, algorithm, what] :
       {std::tuple{LinkClass::kLinkStream, ExchangeAlgorithm::kFlat,
                   "rows to all ranks of other nodes, in staggered rounds"},
        std::tuple{LinkClass::kLinkDirect, ExchangeAlgorithm::kDirect, "the same, to all at once"}}) {
    progress.say(fmt::format("measuring {}", what));
    MeasuredLink measured{link, what, {}, {}};
    for (std::int64_t rows = 1; rows <= most; rows *= 2) {
      const double bytes = static_cast<double>(rows * peers * kHidden * 2);
      // The same on all ranks, also where nodes differ in theirs.
      const auto turns =
          static_cast<int>(std::clamp<std::int64_t>(kStreamBytes / (rows * kHidden * comm.size()), 5, 31));
      MOETAX_ASSIGN(const double us, meter.stream(to_far_ranks(nodes, rows), algorithm, turns));
      // Without the meeting of the call, which is told apart.
      measured.samples.push_back({bytes, std::max(us - meeting_us, 0.01 * us)});
    }
    measured.cost = fit_link(measured.samples);
    machine.links.push_back(std::move(measured));
  }
  return {};
}

}  // namespace

Result<void> measure_calls(Communicator& comm, const CalibrateProgress& progress, MachineCosts& machine) {
  constexpr int kTurns = 51, kPlanTurns = 9;
  progress.say("measuring calls without rows");
  const auto meter_over = [&](Communicator& ranks) {
    return CallMeter::create(ranks, kManyTokens, kSlimHidden, kExpertsPerRank * ranks.size(),
                             std::min(kTopK, kExpertsPerRank * ranks.size()), progress.deadline_s);
  };
  {
    MOETAX_ASSIGN(CallMeter all, meter_over(comm));
    MOETAX_ASSIGN(const auto empty, all.calls(to_everywhere(0, kExpertsPerRank * comm.size()), kTurns));
    machine.calls.dispatch_us = empty.dispatch_us;
    machine.calls.combine_us = empty.combine_us;
  }
  {
    const Deadline deadline = Deadline::in_seconds(progress.deadline_s);
    MOETAX_ASSIGN(const auto near, comm.split(NodeMap(comm).node_of(comm.rank()), deadline));
    const int experts = kExpertsPerRank * near->size();
    MOETAX_ASSIGN(CallMeter node, meter_over(*near));
    MOETAX_ASSIGN(const auto empty, node.calls(to_everywhere(0, experts), kTurns));
    MOETAX_ASSIGN(const auto few, node.calls(to_everywhere(kFewTokens, experts), kPlanTurns));
    MOETAX_ASSIGN(const auto many, node.calls(to_everywhere(kManyTokens, experts), kPlanTurns));
    machine.calls.node_dispatch_us = empty.dispatch_us;
    machine.calls.node_combine_us = empty.combine_us;
    const double token_us =
        std::max(0.0, many.dispatch_us - few.dispatch_us) / static_cast<double>(kManyTokens - kFewTokens);
    machine.calls.choice_ns = 1e3 * token_us / kTopK;
    machine.calls.node_push_us = std::max(0.0, few.dispatch_us - token_us * kFewTokens);
  }
  return measure_streams(comm, progress, machine.calls.combine_us, machine);
}

}  // namespace moetax::cli
