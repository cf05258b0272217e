#include "moetax/cost/exchange_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace moetax {
namespace {

// Of the other links, from which on the fullest runs as if alone. Measured on hot experts: at 0.35 it reached its rate.
constexpr double kSlackOfNoLoss = 0.3;

double smallest_us(const LinkCost* link) {
  return link ? link->time_us(0) : 0;
}
// What the size costs.
double bytes_us(const LinkCost* link, double bytes) {
  return link && bytes > 0 ? std::max(0.0, link->time_us(bytes) - link->time_us(0)) : 0;
}

// As which class an algorithm's rows were timed; a mesh passes them on as a ring does.
LinkClass link_of(ExchangeAlgorithm algorithm) {
  switch (algorithm) {
    case ExchangeAlgorithm::kFlat:
      break;
    case ExchangeAlgorithm::kDirect:
      return LinkClass::kLinkDirect;
    case ExchangeAlgorithm::kRing:
    case ExchangeAlgorithm::kMesh2d:
      return LinkClass::kLinkRelay;
    case ExchangeAlgorithm::kTwoLevel:
      return LinkClass::kLinkTwoLevel;
  }
  return LinkClass::kLinkStream;
}

class Predictor {
 public:
  Predictor(const MachineCosts& machine, const Traffic& traffic, ExchangeCall call, ExchangeAlgorithm algorithm,
            double row_bytes)
      : machine_(machine),
        traffic_(traffic),
        places_(traffic.places),
        call_(call),
        algorithm_(algorithm),
        row_bytes_(row_bytes),
        copy_(machine.find(LinkClass::kCopy)),
        sum_(machine.find(LinkClass::kSum)),
        memory_(machine.find(LinkClass::kMemoryShared)),
        node_choices_(static_cast<std::size_t>(places_.ranks() * places_.nodes())) {
    for (Rank source = 0; source < places_.ranks(); ++source) {
      over_group(source, [&](Rank mate) {
        node_choices_[at_node(source, places_.node_of(mate))] += traffic_.choices_at(source, mate);
      });
    }
  }

  CallCost predict() const {
    CallCost cost;
    cross(cost);
    inside(cost);
    cost.sync_us = sync();
    return cost;
  }

 private:
  // ---- Between nodes ----

  void cross(CallCost& cost) const {
    const std::vector<HopLoad> hops = hop_loads(traffic_, call_, algorithm_, row_bytes_);
    if (hops.empty()) return;
    const LinkClass link = link_of(algorithm_);
    cost.start_up_us = start_up_us(hops.front());
    cost.bandwidth_us = transfer_us(link, hops);
    if (link != LinkClass::kLinkRelay) return;
    // Relays were timed with the start-ups of their hops. What the bytes would take if each crossed once is bandwidth;
    // the rest is the price of the hops.
    double start_ups = 0;
    for (const HopLoad& hop : hops) start_ups += start_up_us(hop);
    const double all = std::max(start_ups, cost.bandwidth_us);
    const auto straight = hop_loads(traffic_, call_, ExchangeAlgorithm::kFlat, row_bytes_);
    cost.bandwidth_us = std::min(all - cost.start_up_us, transfer_us(link, straight));
    cost.hops_us = all - cost.start_up_us - cost.bandwidth_us;
  }

  // The latency, and for each further peer what a message more costs: N - 1 in all. The mean over ranks: those with
  // fewer peers leave cores and links to the others.
  double start_up_us(const HopLoad& hop) const {
    const double peers = std::accumulate(hop.peers.begin(), hop.peers.end(), 0.0) / places_.ranks();
    const LinkClass link = link_of(algorithm_);
    const double to_all = smallest_us(machine_.find(link == LinkClass::kLinkRelay ? LinkClass::kLinkStream : link));
    const double one = std::min(to_all, smallest_us(machine_.find(LinkClass::kLink)));
    const double measured_peers =
        link == LinkClass::kLinkTwoLevel ? machine_.nodes - 1 : machine_.ranks - machine_.ranks_per_node();
    const double gap = measured_peers > 1 ? (to_all - one) / (measured_peers - 1) : 0;
    return peers > 0 ? one + std::max(0.0, peers - 1) * gap : 0;
  }

  // The fullest node's link, or one rank that could not fill it alone. All links together carry less than one alone,
  // because ranks wait for each other; with some slack on the others the fullest one loses nothing.
  double transfer_us(LinkClass link, const std::vector<HopLoad>& hops) const {
    double most = 0, mean = 0, of_rank = 0;
    for (const HopLoad& hop : hops) {
      most += hop.most_of_node(places_);
      mean += hop.mean_of_nodes(places_);
      of_rank += bytes_us(machine_.find(LinkClass::kLink), hop.most_of_rank());
    }
    if (most == 0) return of_rank;
    const double together = bytes_us(machine_.find(link), most / machine_.ranks_per_node());
    const double alone = std::min(together, bytes_us(machine_.find(LinkClass::kLink), most));
    const double slack = 1 - mean / most, crowded = std::max(0.0, 1 - slack / kSlackOfNoLoss);
    return std::max(crowded * together + (1 - crowded) * alone, of_rank);
  }

  // ---- Inside a node ----

  void inside(CallCost& cost) const {
    double most_push = 0, most_work = 0;
    for (Rank rank = 0; rank < places_.ranks(); ++rank) {
      if (goes_back(call_)) {
        most_work = std::max(most_work, crowding() * sums_us(rank));
      } else {
        const double push = crowding() * bytes_us(memory_, pushed_rows(rank) * row_bytes_);
        const double work = crowding() * bytes_us(copy_, placed_rows(rank) * row_bytes_);
        if (push + work > most_push + most_work) {
          most_push = push;
          most_work = work;
        }
      }
    }
    // Where nothing crosses, what goes to other ranks' memory is the transfer.
    (!places_.crosses() ? cost.bandwidth_us : cost.copy_us) += most_push;
    cost.copy_us += most_work;
  }

  bool near(Rank a, Rank b) const { return places_.node_of(a) == places_.node_of(b); }
  template <class Body>
  void over_group(Rank rank, Body body) const {
    const Rank first = places_.first_of_group(rank);
    for (Rank mate = first; mate < first + places_.group(); ++mate) body(mate);
  }

  double pushed_rows(Rank rank) const {
    std::int64_t rows = 0;
    over_group(rank, [&](Rank mate) {
      if (mate != rank && near(rank, mate)) rows += traffic_.rows_at(rank, mate);
    });
    return static_cast<double>(rows);
  }

  // Own tokens into the own experts' rows, and the further places of rows that came once.
  double placed_rows(Rank rank) const {
    std::int64_t rows = 0;
    const bool two_level = algorithm_ == ExchangeAlgorithm::kTwoLevel;
    const int home = places_.node_of(rank);
    over_group(rank, [&](Rank mate) {
      if (mate == rank) {
        rows += traffic_.choices_at(rank, rank);
      } else if (near(mate, rank) || !two_level) {
        rows += traffic_.choices_at(mate, rank) - traffic_.rows_at(mate, rank);
      } else if (places_.counterpart(mate, home) == rank) {
        rows += node_choices_[at_node(mate, home)] - traffic_.node_rows_at(mate, home);
      }
    });
    return static_cast<double>(rows);
  }

  // Its tokens' rows, or sums of nodes, added up; two-level before that the sums for those it stands for.
  double sums_us(Rank rank) const {
    const bool two_level = algorithm_ == ExchangeAlgorithm::kTwoLevel;
    const int home = places_.node_of(rank);
    std::int64_t terms = 0, summed = 0;
    over_group(rank, [&](Rank mate) {
      if (near(mate, rank) || !two_level) terms += traffic_.choices_at(rank, mate);
      if (two_level && !near(mate, rank) && places_.counterpart(mate, home) == rank) {
        summed += node_choices_[at_node(mate, home)];
      }
    });
    if (two_level) {
      for (int node = 0; node < places_.nodes(); ++node) {
        if (node != home) terms += traffic_.node_rows_at(rank, node);
      }
    }
    return bytes_us(sum_, static_cast<double>(terms + summed) * row_bytes_);
  }

  // ---- Agreement ----

  double sync() const {
    const bool crosses = places_.crosses();
    const CallCosts& calls = machine_.calls;
    const double measured_peers = (crosses ? machine_.ranks : machine_.ranks_per_node()) - 1;
    const double more_peers = measured_peers > 0 ? (places_.group() - 1) / measured_peers : 1;
    if (goes_back(call_)) return more_peers * (crosses ? calls.combine_us : calls.node_combine_us);
    const double second_round = std::max(0.0, calls.node_push_us - calls.node_dispatch_us);
    const double first = more_peers * (crosses ? calls.dispatch_us : calls.node_dispatch_us);
    return first + (pushes() ? second_round : 0) + plan_us();
  }

  double most_tokens() const {
    return static_cast<double>(*std::max_element(traffic_.tokens.begin(), traffic_.tokens.end()));
  }
  bool pushes() const {
    return call_ != ExchangeCall::kDispatch || most_tokens() > static_cast<double>(kMaxOfferedRows) ||
           most_tokens() * row_bytes_ > static_cast<double>(offered_limit_bytes(machine_.l2_bytes));
  }
  double plan_us() const {
    if (call_ != ExchangeCall::kDispatch) return 0;
    return crowding() * most_tokens() * traffic_.topk * machine_.calls.choice_ns * 1e-3;
  }

  // More ranks of a node take turns on its cores than did when it was measured, or fewer.
  double crowding() const {
    if (machine_.cores < 1) return 1;
    const auto turns = [&](double ranks) { return std::max(1.0, ranks / machine_.cores); };
    return turns(static_cast<double>(places_.ranks()) / places_.nodes()) / turns(machine_.ranks_per_node());
  }

  std::size_t at_node(Rank source, int node) const { return static_cast<std::size_t>(source * places_.nodes() + node); }

  const MachineCosts& machine_;
  const Traffic& traffic_;
  const RankPlaces& places_;
  ExchangeCall call_;
  ExchangeAlgorithm algorithm_;
  double row_bytes_;
  const LinkCost *copy_, *sum_, *memory_;
  std::vector<std::int64_t> node_choices_;  // [R, nodes] of each source on the ranks of a node
};

}  // namespace

std::optional<std::string> cannot_predict(const MachineCosts& machine, const RankPlaces& places) {
  std::vector<LinkClass> needed{LinkClass::kCopy, LinkClass::kSum};
  if (places.crosses())
    needed.insert(needed.end(), {LinkClass::kLink, LinkClass::kLinkStream, LinkClass::kLinkDirect,
                                 LinkClass::kLinkRelay, LinkClass::kLinkTwoLevel});
  if (places.shares_nodes()) needed.push_back(LinkClass::kMemoryShared);
  for (const LinkClass link : needed) {
    if (machine.find(link)) continue;
    return fmt::format(
        "{} was not measured on the {} rank{} and {} node{} of the calibration: measure with as many as "
        "this run has",
        to_string(link), machine.ranks, machine.ranks == 1 ? "" : "s", machine.nodes, machine.nodes == 1 ? "" : "s");
  }
  return std::nullopt;
}

CallCost predict_call(const MachineCosts& machine, const Traffic& traffic, ExchangeCall call,
                      ExchangeAlgorithm algorithm, double row_bytes) {
  return Predictor(machine, traffic, call, algorithm, row_bytes).predict();
}

std::vector<RankedAlgorithm> rank_algorithms(const MachineCosts& machine, const Traffic& traffic, double row_bytes) {
  std::vector<RankedAlgorithm> ranked;
  const int candidates = traffic.places.crosses() ? kNumExchangeAlgorithms : 1;
  for (int i = 0; i < candidates; ++i) {
    const auto algorithm = static_cast<ExchangeAlgorithm>(i);
    double us = 0;
    for (const ExchangeCall call : {ExchangeCall::kDispatch, ExchangeCall::kCombine}) {
      us += predict_call(machine, traffic, call, algorithm, row_bytes).total_us();
    }
    ranked.push_back({algorithm, us});
  }
  const auto faster = [](const RankedAlgorithm& a, const RankedAlgorithm& b) {
    return a.predicted_us < b.predicted_us;
  };
  std::stable_sort(ranked.begin(), ranked.end(), faster);
  return ranked;
}

double link_roof(const MachineCosts& machine, bool crosses) {
  double roof = 0;
  const auto fastest = [&](LinkClass link, double of_rank) {
    for (const MeasuredLink& measured : machine.links) {
      if (measured.link != link || measured.samples.empty()) continue;
      // Small messages may be faster than what a link carries for long: caches, and bursts that shaping lets pass.
      const auto by_size = [](const LinkSample& a, const LinkSample& b) { return a.bytes < b.bytes; };
      const double most = std::max_element(measured.samples.begin(), measured.samples.end(), by_size)->bytes;
      for (const LinkSample& sample : measured.samples) {
        if (sample.bytes >= most / 8) roof = std::max(roof, of_rank * sample.bytes / sample.us);
      }
    }
  };
  if (!crosses) {
    for (const LinkClass link : {LinkClass::kMemoryShared, LinkClass::kSum}) fastest(link, 1);
    return roof;
  }
  for (const LinkClass link : {LinkClass::kLinkShared, LinkClass::kLinkStream, LinkClass::kLinkDirect}) {
    fastest(link, 1);
  }
  fastest(LinkClass::kLink, 1 / machine.ranks_per_node());
  return roof;
}

}  // namespace moetax
