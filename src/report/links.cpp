#include "report/links.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "moetax/base/statistics.h"

namespace moetax::report {
namespace {

constexpr double kSlow = 2;  // times slower than the others

// Bytes per ns, which is GB/s, of the streams from one node to another.
using Rates = std::map<std::pair<Node, Node>, double>;

Rates rates_between(const std::vector<RankLedger>& ledgers) {
  std::map<Rank, Node> node;
  for (const RankLedger& ledger : ledgers) node[ledger.rank] = ledger.node;
  std::map<std::pair<Node, Node>, std::pair<double, double>> sums;
  for (const RankLedger& ledger : ledgers) {
    for (const LedgerFlow& flow : ledger.flows) {
      const auto from = node.find(flow.peer);
      if (from == node.end() || flow.ns <= 0) continue;
      auto& [bytes, ns] = sums[{from->second, ledger.node}];
      bytes += static_cast<double>(flow.bytes);
      ns += static_cast<double>(flow.ns);
    }
  }
  Rates rates;
  for (const auto& [way, sum] : sums) rates[way] = sum.first / sum.second;
  return rates;
}

double median_or_0(std::vector<double> values) {
  return values.empty() ? 0 : median(std::move(values));
}

}  // namespace

// The rate between all others tells whether a node is slow, not by how much: rows that waited behind those for the slow
// node come all at once.
std::vector<BillLink> find_links(const std::vector<RankLedger>& ledgers) {
  const Rates rates = rates_between(ledgers);
  std::map<Node, BillLink> links;
  for (const auto& [way, rate] : rates) {
    links[way.first].node = way.first;
    links[way.second].node = way.second;
  }
  std::vector<BillLink> found;
  std::size_t slowest = 0;
  double most = 0;
  for (auto& [node, link] : links) {
    std::vector<double> its, others;
    for (const auto& [way, rate] : rates) (way.first == node || way.second == node ? its : others).push_back(rate);
    link.gbs = median_or_0(std::move(its));
    const double slower = link.gbs > 0 ? median_or_0(std::move(others)) / link.gbs : 0;
    if (slower > most) {
      most = slower;
      slowest = found.size();
    }
    found.push_back(link);
  }
  if (most > kSlow) found[slowest].slow = true;
  return found;
}

const BillLink* slow_link(const Bill& bill) {
  const auto slow = std::find_if(bill.links.begin(), bill.links.end(), [](const BillLink& link) { return link.slow; });
  return slow == bill.links.end() ? nullptr : &*slow;
}

}  // namespace moetax::report
