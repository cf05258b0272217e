#include "moetax/cost/traffic.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdlib>
#include <numeric>
#include <utility>

#include "moetax/base/node_ways.h"

namespace moetax {
namespace {

constexpr double kSlotBytes = 8, kWeightBytes = 4;  // exchange/far_layout.h
constexpr std::array kCalls = {"dispatch", "dispatch_grad", "redispatch", "combine", "combine_grad"};

// What goes from one rank to another in a call, rows and the header before them.
struct Bundle {
  Rank from, to;
  std::int64_t rows;
  double bytes;
};

// The nodes behind the first, the destination's last.
std::vector<int> way(ExchangeAlgorithm algorithm, int from, int to, int nodes) {
  std::vector<int> way;
  if (algorithm == ExchangeAlgorithm::kRing) {
    const int distance = ring_distance(from, to, nodes), step = distance > 0 ? 1 : -1;
    for (int hop = 1; hop < std::abs(distance); ++hop) way.push_back((from + hop * step + nodes) % nodes);
  }
  if (algorithm == ExchangeAlgorithm::kMesh2d) {
    const int columns = mesh_columns(nodes), corner = from / columns * columns + to % columns;
    if (corner != from && corner != to) way.push_back(corner);
  }
  way.push_back(to);
  return way;
}

class Bundles {
 public:
  Bundles(const Traffic& traffic, ExchangeCall call, ExchangeAlgorithm algorithm, double row_bytes)
      : traffic_(traffic), call_(call), two_level_(algorithm == ExchangeAlgorithm::kTwoLevel), row_bytes_(row_bytes) {}

  std::vector<Bundle> all() const {
    const RankPlaces& places = traffic_.places;
    std::vector<Bundle> bundles;
    for (Rank source = 0; source < places.ranks(); ++source) {
      for (const int node : places.nodes_of_group(source)) {
        if (node == places.node_of(source)) continue;
        std::int64_t choices = 0;
        for (const Rank mate : places.mates(source, node)) {
          if (!two_level_)
            add(source, mate, traffic_.rows_at(source, mate), traffic_.choices_at(source, mate), bundles);
          choices += traffic_.choices_at(source, mate);
        }
        if (two_level_) {
          add(source, places.counterpart(source, node), traffic_.node_rows_at(source, node), choices, bundles);
        }
      }
    }
    return bundles;
  }

 private:
  void add(Rank source, Rank stop, std::int64_t rows, std::int64_t choices, std::vector<Bundle>& bundles) const {
    if (choices == 0) return;
    const auto slots = static_cast<double>(choices);
    if (goes_back(call_)) {
      const std::int64_t back = two_level_ ? rows : choices;
      const double header = call_ == ExchangeCall::kCombineGrad ? kWeightBytes * slots : 0;
      const double each = two_level_ ? traffic_.sum_scale * row_bytes_ : row_bytes_;
      bundles.push_back({stop, source, back, header + static_cast<double>(back) * each});
      return;
    }
    const bool fresh = call_ == ExchangeCall::kDispatch;
    const bool weights = call_ == ExchangeCall::kDispatchGrad || (fresh && two_level_);
    const double header = slots * ((fresh ? kSlotBytes : 0) + (weights ? kWeightBytes : 0));
    bundles.push_back({source, stop, rows, header + static_cast<double>(rows) * row_bytes_});
  }

  const Traffic& traffic_;
  ExchangeCall call_;
  bool two_level_;
  double row_bytes_;
};

}  // namespace

RankPlaces::RankPlaces(std::vector<int> node, int group)
    : node_(std::move(node)),
      nodes_(node_.empty() ? 0 : *std::max_element(node_.begin(), node_.end()) + 1),
      group_(group) {
  assert(group > 0 && ranks() % group == 0);
  const auto groups = static_cast<std::size_t>(ranks() / group);
  group_nodes_.resize(groups);
  mates_.resize(groups * static_cast<std::size_t>(nodes_));
  for (Rank rank = 0; rank < ranks(); ++rank) {
    std::vector<Rank>& mates = mates_[mates_at(rank, node_of(rank))];
    std::vector<int>& nodes = group_nodes_[static_cast<std::size_t>(rank / group)];
    place_.push_back(static_cast<int>(mates.size()));
    if (mates.empty()) nodes.push_back(node_of(rank));
    mates.push_back(rank);
    place_of_node_.push_back(static_cast<int>(std::find(nodes.begin(), nodes.end(), node_of(rank)) - nodes.begin()));
    crosses_ = crosses_ || nodes.size() > 1;
    shares_nodes_ = shares_nodes_ || mates.size() > 1;
  }
}

Traffic Traffic::none(RankPlaces places) {
  Traffic traffic;
  const auto ranks = static_cast<std::size_t>(places.ranks()), nodes = static_cast<std::size_t>(places.nodes());
  traffic.places = std::move(places);
  traffic.tokens.resize(ranks);
  traffic.choices.resize(ranks * ranks);
  traffic.rows.resize(ranks * ranks);
  traffic.node_rows.resize(ranks * nodes);
  return traffic;
}

Traffic Traffic::of_sources(RankPlaces places, int experts, int topk, std::span<const std::int64_t> sources) {
  Traffic traffic = none(std::move(places));
  traffic.experts = experts;
  traffic.topk = topk;
  const std::size_t ranks = traffic.tokens.size(), nodes = traffic.node_rows.size() / ranks;
  assert(sources.size() == ranks * source_size(traffic.places));
  for (std::size_t r = 0; r < ranks; ++r) {
    const std::int64_t* from = sources.data() + r * source_size(traffic.places);
    traffic.tokens[r] = *from;
    std::copy_n(from + 1, ranks, &traffic.choices[r * ranks]);
    std::copy_n(from + 1 + ranks, ranks, &traffic.rows[r * ranks]);
    std::copy_n(from + 1 + 2 * ranks, nodes, &traffic.node_rows[r * nodes]);
  }
  return traffic;
}

std::size_t source_size(const RankPlaces& places) {
  return static_cast<std::size_t>(1 + 2 * places.ranks() + places.nodes());
}

std::vector<std::int64_t> count_source(const RankPlaces& places, std::span<const Rank> owner,
                                       MatrixView<const std::int32_t> expert) {
  const auto ranks = static_cast<std::size_t>(places.ranks());
  std::vector<std::int64_t> counts(source_size(places)), last(counts.size(), -1);  // the last token that went there
  std::int64_t* choices = counts.data() + 1;
  counts[0] = expert.rows;
  const auto count_once = [&](std::size_t at, std::int64_t token) {
    counts[at] += last[at] != token;
    last[at] = token;
  };
  for (std::int64_t t = 0; t < expert.rows; ++t) {
    for (const std::int32_t chosen : expert.row_span(t)) {
      const auto rank = static_cast<std::size_t>(owner[static_cast<std::size_t>(chosen)]);
      ++choices[rank];
      count_once(1 + ranks + rank, t);
      count_once(1 + 2 * ranks + static_cast<std::size_t>(places.node_of(static_cast<Rank>(rank))), t);
    }
  }
  return counts;
}

const char* to_string(ExchangeCall call) {
  return kCalls[static_cast<std::size_t>(call)];
}

std::optional<ExchangeCall> exchange_call(std::string_view name) {
  const auto found = std::find(kCalls.begin(), kCalls.end(), name);
  if (found == kCalls.end()) return std::nullopt;
  return static_cast<ExchangeCall>(found - kCalls.begin());
}

HopLoad::HopLoad(int ranks) {
  const auto size = static_cast<std::size_t>(ranks);
  for (auto* bytes : {&out_bytes, &in_bytes}) bytes->resize(size);
  for (auto* rows : {&out_rows, &in_rows}) rows->resize(size);
  peers.resize(size);
}

double HopLoad::of_node(const RankPlaces& places, int node) const {
  double out = 0, in = 0;
  for (std::size_t r = 0; r < out_bytes.size(); ++r) {
    if (places.node_of(static_cast<Rank>(r)) != node) continue;
    out += out_bytes[r];
    in += in_bytes[r];
  }
  return std::max(out, in);
}

double HopLoad::most_of_node(const RankPlaces& places) const {
  double most = 0;
  for (int node = 0; node < places.nodes(); ++node) most = std::max(most, of_node(places, node));
  return most;
}

double HopLoad::mean_of_nodes(const RankPlaces& places) const {
  return std::accumulate(out_bytes.begin(), out_bytes.end(), 0.0) / places.nodes();
}

double HopLoad::most_of_rank() const {
  double most = 0;
  for (std::size_t r = 0; r < out_bytes.size(); ++r) most = std::max({most, out_bytes[r], in_bytes[r]});
  return most;
}

std::vector<HopLoad> hop_loads(const Traffic& traffic, ExchangeCall call, ExchangeAlgorithm algorithm,
                               double row_bytes) {
  const RankPlaces& places = traffic.places;
  const auto ranks = static_cast<std::size_t>(places.ranks());
  std::vector<HopLoad> hops;
  std::vector<std::vector<char>> linked;  // by hop, [R, R]
  for (const Bundle& bundle : Bundles(traffic, call, algorithm, row_bytes).all()) {
    const std::span<const int> nodes = places.nodes_of_group(bundle.from);
    const std::vector<int> nodes_on_way = way(algorithm, places.place_of_node(bundle.from),
                                              places.place_of_node(bundle.to), static_cast<int>(nodes.size()));
    Rank holder = bundle.from;
    for (std::size_t hop = 0; hop < nodes_on_way.size(); ++hop) {
      if (hop == hops.size()) {
        hops.emplace_back(places.ranks());
        linked.emplace_back(ranks * ranks);
      }
      const bool last = hop + 1 == nodes_on_way.size();
      const int node = nodes[static_cast<std::size_t>(nodes_on_way[hop])];
      const Rank next = last ? bundle.to : places.counterpart(bundle.from, node);
      const auto out = static_cast<std::size_t>(holder), in = static_cast<std::size_t>(next);
      HopLoad& load = hops[hop];
      load.out_bytes[out] += bundle.bytes;
      load.in_bytes[in] += bundle.bytes;
      load.out_rows[out] += bundle.rows;
      load.in_rows[in] += bundle.rows;
      char& known = linked[hop][out * ranks + in];
      if (!known) ++load.peers[out];
      known = 1;
      holder = next;
    }
  }
  return hops;
}

}  // namespace moetax
