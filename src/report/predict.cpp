// What costs say of a bill's exchanges, beside what was measured.
#include <algorithm>
#include <utility>
#include <vector>

#include "moetax/base/statistics.h"
#include "moetax/report/bill.h"

namespace moetax {
namespace {

// The median over steps and the mean over layers of what `of` says of a layer's traffic and an exchange.
template <class Of>
double over_steps(std::span<const ExchangeUse> uses, std::span<const Traffic> layers, Of of) {
  std::vector<Weighted> values;
  for (const ExchangeUse& use : uses) {
    double sum = 0;
    for (const Traffic& traffic : layers) sum += of(traffic, use.algorithm);
    values.push_back({sum / static_cast<double>(layers.size()), static_cast<double>(use.steps)});
  }
  return median(std::move(values));
}

void add_roof(double link_mbs, bool crosses, BillExchange& exchange) {
  if (link_mbs <= 0 || exchange.physical_bytes <= 0 || (crosses && exchange.internode_bytes <= 0)) return;
  const double crossing = static_cast<double>(exchange.internode_bytes) / static_cast<double>(exchange.physical_bytes);
  exchange.roof_gbs = 1e-3 * (crosses ? link_mbs / crossing : link_mbs);
  if (exchange.gbs) exchange.roof_share = *exchange.gbs / *exchange.roof_gbs;
}

// Of a node's link: what the exchanges took over what its bytes would take alone at the calibrated rate. A slow link is
// what everything waits for, so that the whole of a call goes by its rate.
std::optional<double> slowdown_of(const MachineCosts& machine, std::span<const Traffic> layers,
                                  std::span<const ExchangeUse> uses, double row_bytes, int node, const Bill& bill) {
  const LinkCost* link = machine.find(LinkClass::kLink);
  double measured = 0, alone = 0;
  for (const BillExchange& exchange : bill.exchanges) {
    const auto call = exchange_call(exchange.name);
    if (!call || !exchange.span_us) continue;
    measured += *exchange.span_us;
    alone += over_steps(uses, layers, [&](const Traffic& traffic, ExchangeAlgorithm algorithm) {
      double us = 0;
      for (const HopLoad& hop : hop_loads(traffic, *call, algorithm, row_bytes)) {
        us += link->time_us(hop.of_node(traffic.places, node));
      }
      return us;
    });
  }
  if (alone <= 0) return std::nullopt;
  return measured / alone;
}

}  // namespace

void add_predictions(const MachineCosts& machine, std::span<const Traffic> layers, std::span<const ExchangeUse> uses,
                     double row_bytes, Bill& bill) {
  if (layers.empty()) return;
  const bool crosses = layers.front().places.crosses();
  for (BillExchange& exchange : bill.exchanges) {
    const auto call = exchange_call(exchange.name);
    if (!call) continue;
    add_roof(link_roof(machine, crosses), crosses, exchange);
    exchange.predicted_us = over_steps(uses, layers, [&](const Traffic& traffic, ExchangeAlgorithm algorithm) {
      return predict_call(machine, traffic, *call, algorithm, row_bytes).total_us();
    });
    if (exchange.span_us.value_or(0) > 0) exchange.prediction_error = *exchange.predicted_us / *exchange.span_us - 1;
  }
  for (BillLink& link : bill.links) {
    if (link.slow) link.slowdown = slowdown_of(machine, layers, uses, row_bytes, link.node, bill);
  }
}

}  // namespace moetax
