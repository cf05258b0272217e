// What costs say of a bill's exchanges, beside what was measured.
#include <algorithm>

#include "moetax/report/bill.h"

namespace moetax {
namespace {

double mean_prediction(const MachineCosts& machine, std::span<const Traffic> layers, ExchangeCall call,
                       ExchangeAlgorithm algorithm, double row_bytes) {
  double us = 0;
  for (const Traffic& traffic : layers) us += predict_call(machine, traffic, call, algorithm, row_bytes).total_us();
  return us / static_cast<double>(layers.size());
}

void add_roof(double link_mbs, bool several_nodes, BillExchange& exchange) {
  if (link_mbs <= 0 || exchange.physical_bytes <= 0 || (several_nodes && exchange.internode_bytes <= 0)) return;
  const double crossing = static_cast<double>(exchange.internode_bytes) / static_cast<double>(exchange.physical_bytes);
  exchange.roof_gbs = 1e-3 * (several_nodes ? link_mbs / crossing : link_mbs);
  if (exchange.gbs) exchange.roof_share = *exchange.gbs / *exchange.roof_gbs;
}

// Of a node's link: what the exchanges took over what its bytes would take alone at the calibrated rate. A slow link is
// what everything waits for, so that the whole of a call goes by its rate.
std::optional<double> slowdown_of(const MachineCosts& machine, std::span<const Traffic> layers,
                                  ExchangeAlgorithm algorithm, double row_bytes, int node, const Bill& bill) {
  const LinkCost* link = machine.find(LinkClass::kLink);
  double measured = 0, alone = 0;
  for (const BillExchange& exchange : bill.exchanges) {
    const auto call = exchange_call(exchange.name);
    if (!call || !exchange.span_us) continue;
    measured += *exchange.span_us;
    for (const Traffic& traffic : layers) {
      for (const HopLoad& hop : hop_loads(traffic, *call, algorithm, row_bytes)) {
        alone += link->time_us(hop.of_node(traffic.places, node)) / static_cast<double>(layers.size());
      }
    }
  }
  if (alone <= 0) return std::nullopt;
  return measured / alone;
}

}  // namespace

void add_predictions(const MachineCosts& machine, std::span<const Traffic> layers, ExchangeAlgorithm algorithm,
                     double row_bytes, Bill& bill) {
  if (layers.empty()) return;
  const int nodes = layers.front().places.nodes();
  for (BillExchange& exchange : bill.exchanges) {
    const auto call = exchange_call(exchange.name);
    if (!call) continue;
    add_roof(link_roof(machine, nodes), nodes > 1, exchange);
    exchange.predicted_us = mean_prediction(machine, layers, *call, algorithm, row_bytes);
    if (exchange.span_us.value_or(0) > 0) exchange.prediction_error = *exchange.predicted_us / *exchange.span_us - 1;
  }
  for (BillLink& link : bill.links) {
    if (link.slow) link.slowdown = slowdown_of(machine, layers, algorithm, row_bytes, link.node, bill);
  }
}

}  // namespace moetax
