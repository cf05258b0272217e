// What calls of an exchange cost that links do not explain: agreeing and planning, and rows in a stream between nodes.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <tuple>
#include <utility>

#include "cli/calibrate_links.h"
#include "cli/calibrate_turns.h"
#include "moetax/base/memory.h"
#include "moetax/base/node_ways.h"
#include "moetax/exchange/exchange.h"
#include "moetax/transport/node_map.h"

namespace moetax::cli {
namespace {

constexpr std::int64_t kHidden = 2048;                        // bf16: rows of 4 KiB
constexpr std::int64_t kStreamBytes = std::int64_t{8} << 20;  // of a rank, at most
constexpr int kExpertsPerRank = 8, kTopK = 6;                 // of the calls without rows to speak of
constexpr std::int64_t kSlimHidden = 8;
constexpr std::int64_t kFewTokens = 288, kManyTokens = 4096;  // pushed rows, both

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

  // Dispatches and their combines, one after the other as in a layer: medians from when the last rank begins a call
  // until the last is done with it.
  Result<Times> calls(const RoutingTable& routing, int turns) {
    std::vector<Period> dispatches, combines;
    const ConstRows tokens = rows(tokens_.data(), routing.tokens());
    MOETAX_TRY(turns_.meet());
    for (int turn = -1; turn < turns; ++turn) {
      const std::int64_t start = now_ns();
      MOETAX_ASSIGN(Dispatched sent, exchange_->dispatch(tokens, routing));
      const std::int64_t middle = now_ns();
      MOETAX_TRY(exchange_->combine(std::move(sent.handle), routing, {}, rows(out_, routing.tokens())));
      if (turn < 0) continue;
      dispatches.push_back({start, middle});
      combines.push_back({middle, now_ns()});
    }
    Times times;
    MOETAX_ASSIGN(times.dispatch_us, turns_.median_span(dispatches));
    MOETAX_ASSIGN(times.combine_us, turns_.median_span(combines));
    return times;
  }

  Result<void> set_algorithm(ExchangeAlgorithm algorithm) { return exchange_->set_algorithm(algorithm); }

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

// Rows to each far rank: 1, 2, 3, 4, 6, 8, 12, ... up to 64, where links change their ways, then doubled.
std::int64_t next_rows(std::int64_t rows) {
  const bool power = (rows & (rows - 1)) == 0;
  if (rows == 1 || rows >= 64) return 2 * rows;
  return power ? rows * 3 / 2 : rows * 4 / 3;
}

// How many rows cross the links of the node that sends most, for one from each rank to each of another node: once, or
// in a ring as often as the nodes are apart. As a rank's share, of as many ranks as nodes have in the mean.
double crossings_of_rank(const NodeMap& nodes, int ranks, ExchangeAlgorithm algorithm) {
  const int num = nodes.num_nodes();
  double most = 0;
  for (Node from = 0; from < num; ++from) {
    double crossings = 0;
    for (Node to = 0; to < num; ++to) {
      const int hops = algorithm == ExchangeAlgorithm::kRing ? std::abs(ring_distance(from, to, num)) : to != from;
      crossings += static_cast<double>(hops) * static_cast<double>(nodes.ranks_of(to).size());
    }
    most = std::max(most, crossings * static_cast<double>(nodes.ranks_of(from).size()));
  }
  return most * num / ranks;
}

// What rows add to a dispatch and its combine that bring nothing, half of it.
Result<void> measure_stream(CallMeter& meter, const NodeMap& nodes, std::int64_t most_rows, double crossings,
                            MeasuredLink& measured) {
  constexpr int kEmptyTurns = 51;
  MOETAX_ASSIGN(const auto empty, meter.calls(to_far_ranks(nodes, 0), kEmptyTurns));
  for (std::int64_t rows = 1; rows <= most_rows; rows = next_rows(rows)) {
    // The same on all ranks, also where nodes differ in theirs.
    const auto turns = static_cast<int>(std::clamp<std::int64_t>(kStreamBytes / (rows * kHidden * 8), 5, 31));
    MOETAX_ASSIGN(const auto full, meter.calls(to_far_ranks(nodes, rows), turns));
    const double us = (full.dispatch_us - empty.dispatch_us + full.combine_us - empty.combine_us) / 2;
    const double bytes = crossings * static_cast<double>(rows * kHidden * 2);
    measured.samples.push_back({bytes, std::max(us, 0.01 * full.combine_us)});
  }
  return {};
}

Result<void> measure_streams(Communicator& comm, const CalibrateProgress& progress, MachineCosts& machine) {
  const NodeMap nodes(comm);
  if (nodes.num_nodes() < 2) return {};
  const auto peers = static_cast<std::int64_t>(nodes.far().size());
  const std::int64_t most = std::max<std::int64_t>(4, kStreamBytes / (2 * kHidden) / (comm.size() - 1));
  MOETAX_ASSIGN(CallMeter meter, CallMeter::create(comm, most * peers, kHidden, comm.size(), 1, progress.deadline_s));
  for (const auto& [link, algorithm, what] :
       {std::tuple{LinkClass::kLinkStream, ExchangeAlgorithm::kFlat,
                   "rows to all ranks of other nodes, in staggered rounds"},
        std::tuple{LinkClass::kLinkDirect, ExchangeAlgorithm::kDirect, "the same, to all at once"},
        std::tuple{LinkClass::kLinkRelay, ExchangeAlgorithm::kRing, "the same, through the nodes of a ring; all hops"},
        std::tuple{LinkClass::kLinkTwoLevel, ExchangeAlgorithm::kTwoLevel, "the same, each by one rank of its node"}}) {
    progress.say(fmt::format("measuring {}", what));
    MeasuredLink measured{link, what, {}, {}};
    MOETAX_TRY(meter.set_algorithm(algorithm));
    MOETAX_TRY(measure_stream(meter, nodes, most, crossings_of_rank(nodes, comm.size(), algorithm), measured));
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
    machine.calls.node_push_us = std::max(empty.dispatch_us, few.dispatch_us - token_us * kFewTokens);
  }
  return measure_streams(comm, progress, machine);
}

}  // namespace moetax::cli
