// moetax.bill/1. The order of the keys is the order of docs/bill.md.
#include <cmath>
#include <nlohmann/json.hpp>

#include "moetax/report/bill.h"
#include "report/waits.h"

namespace moetax {
namespace {

using Json = nlohmann::ordered_json;

// Digits below these are noise: nanoseconds of a time, a millionth of a ratio. Never NaN or infinite.
Json rounded(double value, double unit) {
  if (!std::isfinite(value)) return nullptr;
  const double scaled = std::round(value * unit);
  return std::isfinite(scaled) ? scaled / unit : value;
}
Json us(double value) {
  return rounded(value, 1e3);
}
Json us(const std::optional<double>& value) {
  return value ? us(*value) : Json(nullptr);
}
Json ratio(double value) {
  return rounded(value, 1e6);
}
Json ratio(const std::optional<double>& value) {
  return value ? ratio(*value) : Json(nullptr);
}
Json rank_or_null(Rank rank) {
  return rank == kNoRank ? Json(nullptr) : Json(rank);
}

// Traces say little of the machine and the model: what they leave open is null, never a guess or a zero.
Json known(const Bill& bill, const Json& value) {
  return bill.trace ? Json(nullptr) : value;
}

Json machine_json(const Bill& bill) {
  const HostInfo& host = bill.machine;
  if (bill.trace) return {{"devices", bill.trace->models}};
  return {{"cpu", host.cpu},
          {"isa", host.isa},
          {"cores", host.cores},
          {"numa_nodes", host.numa_nodes},
          {"memory_bytes", host.memory_bytes},
          {"pinning", bill.pinning},
          {"huge_pages", host.huge_pages},
          {"kernel", host.kernel},
          {"gemm", bill.gemm},
          {"mpi", bill.mpi.empty() ? Json(nullptr) : Json(bill.mpi)}};
}

template <class T>
Json value_or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json config_json(const Bill& bill) {
  const BillConfig& config = bill.config;
  if (bill.trace) return {{"ranks", config.ranks}, {"mode", "trace"}};
  Json delays = Json::array();
  for (const BillDelay& delay : config.delays) delays.push_back({{"rank", delay.rank}, {"ms", delay.ms}});
  return {{"model", config.model.empty() ? Json(nullptr) : Json(config.model)},
          {"ranks", config.ranks},
          {"nodes", config.nodes},
          {"hosts", config.hosts},
          {"ep_size", value_or_null(config.ep_size)},
          {"threads", config.threads},
          {"tokens_per_rank", config.tokens_per_rank},
          {"hidden", config.hidden},
          {"inter", config.inter},
          {"experts", config.experts},
          {"experts_per_rank", config.experts_per_rank},
          {"topk", config.topk},
          {"shared", config.shared},
          {"dtype", config.dtype},
          {"wire", {{"dispatch", config.wire_dispatch}, {"combine", config.wire_combine}}},
          {"mode", config.mode},
          {"exchange", config.exchange},
          {"costs", config.costs.empty() ? Json(nullptr) : Json(config.costs)},
          {"transport", config.transport},
          {"overlap", config.overlap},
          {"routing", config.routing},
          {"backward", config.backward},
          {"recompute", config.recompute},
          {"layers", config.layers},
          {"steps", config.steps},
          {"warmup", config.warmup},
          {"seed", config.seed},
          {"delays", delays},
          {"deadline_s", value_or_null(config.deadline_s)}};
}

Json stats_json(const BillStats& stats) {
  return {{"mean", us(stats.mean)}, {"std", us(stats.std)}, {"p50", us(stats.p50)}, {"p95", us(stats.p95)},
          {"p99", us(stats.p99)},   {"min", us(stats.min)}, {"max", us(stats.max)}, {"count", stats.count}};
}

Json waited_json(const BillWaitedFor& waited) {
  Json causes = Json::object();
  for (std::size_t i = 0; i < waited.by_cause_us.size(); ++i) {
    if (waited.by_cause_us[i] > 0) causes[report::cause_id(static_cast<WaitCause>(i))] = us(waited.by_cause_us[i]);
  }
  return {{"rank", rank_or_null(waited.rank)},
          {"us", us(waited.us)},
          {"cause", report::cause_id(waited.cause)},
          {"cause_text", waited.cause_text},
          {"by_cause_us", causes}};
}

Json rank_json(const BillRank& rank) {
  Json waited = Json::array();
  for (const BillWaitedFor& entry : rank.waited_for) waited.push_back(waited_json(entry));
  return {{"rank", rank.rank},
          {"node", rank.node},
          {"step_us", us(rank.step_us)},
          {"compute_us", us(rank.compute_us)},
          {"pack_us", us(rank.pack_us)},
          {"wire_us", us(rank.wire_us)},
          {"wait_us", us(rank.wait_us)},
          {"launch_us", us(rank.launch_us)},
          {"other_us", us(rank.other_us)},
          {"comm_us", us(rank.comm_us)},
          {"exposed_us", us(rank.exposed_us)},
          {"hidden_us", us(rank.hidden_us)},
          {"expert_rows", ratio(rank.expert_rows)},
          {"waited_for", waited}};
}

Json bytes(std::int64_t count, bool known) {
  return known ? Json(count) : Json(nullptr);
}

Json exchange_json(const BillExchange& exchange) {
  return {{"name", exchange.name},
          {"phase", exchange.phase},
          {"family", exchange.family},
          {"calls", exchange.calls},
          {"logical_bytes", bytes(exchange.logical_bytes, exchange.bytes_known)},
          {"physical_bytes", bytes(exchange.physical_bytes, exchange.physical_known)},
          {"internode_bytes", bytes(exchange.internode_bytes, exchange.physical_known)},
          {"us", us(exchange.us)},
          {"std_us", us(exchange.std_us)},
          {"wait_us", us(exchange.wait_us)},
          {"transfer_us", us(exchange.transfer_us)},
          {"last_rank", rank_or_null(exchange.last_rank)},
          {"gbs", ratio(exchange.gbs)},
          {"roof_gbs", ratio(exchange.roof_gbs)},
          {"roof_share", ratio(exchange.roof_share)},
          {"span_us", us(exchange.span_us)},
          {"predicted_us", us(exchange.predicted_us)},
          {"prediction_error", ratio(exchange.prediction_error)}};
}

Json link_json(const BillLink& link) {
  return {{"node", link.node}, {"gbs", ratio(link.gbs)}, {"slow", link.slow}, {"slowdown", ratio(link.slowdown)}};
}

Json choice_json(const BillChoice& choice) {
  return {{"after_steps", choice.after_steps}, {"exchange", choice.exchange}, {"why", choice.why}};
}

Json decomposition_json(const BillDecomposition& of) {
  return {{"exchange", of.exchange},
          {"name", of.name},
          {"start_up_us", us(of.predicted.start_up_us)},
          {"bandwidth_us", us(of.predicted.bandwidth_us)},
          {"hops_us", us(of.predicted.hops_us)},
          {"copy_us", us(of.predicted.copy_us)},
          {"sync_us", us(of.predicted.sync_us)},
          {"predicted_us", us(of.predicted.total_us())},
          {"span_us", us(of.span_us)}};
}

Json stress_json(const BillStress& load) {
  return {{"replicas", load.replicas},
          {"prompt", load.prompt},
          {"output", load.output},
          {"concurrency", load.concurrency > 0 ? Json(load.concurrency) : Json(nullptr)},
          {"rate", load.concurrency > 0 ? Json(nullptr) : ratio(load.rate)},
          {"latency_us", stats_json(load.latency_us)},
          {"tokens_per_s", ratio(load.tokens_per_s)},
          {"steps", load.steps},
          {"step_us", us(load.step_us)},
          {"tax_share", ratio(load.tax_share)}};
}

Json routing_json(const BillRouting& routing) {
  return {{"entropy_bits", ratio(routing.entropy_bits)},
          {"entropy_max_bits", ratio(routing.entropy_max_bits)},
          {"expert_tokens", routing.expert_tokens},
          {"expert_max_over_mean", ratio(routing.expert_max_over_mean)},
          {"rank_max_over_mean", ratio(routing.rank_max_over_mean)},
          {"experts_never_chosen", routing.experts_never_chosen},
          {"dropped_tokens", routing.dropped_tokens}};
}

Json finding_json(const BillFinding& finding) {
  return {{"id", finding.id},
          {"severity", finding.severity},
          {"title", finding.title},
          {"cause", finding.cause},
          {"evidence", finding.evidence},
          {"fix", finding.fix},
          {"gain_us_estimate", us(finding.gain_us_estimate)}};
}

Json source_json(const BillSource& source) {
  return {{"file", source.file},
          {"kind", source.kind.empty() ? Json(nullptr) : Json(source.kind)},
          {"rank", rank_or_null(source.rank)},
          {"used", source.used},
          {"skipped", source.skipped},
          {"why", source.why.empty() ? Json(nullptr) : Json(source.why)}};
}

Json operation_json(const BillTraceOperation& operation) {
  return {{"family", operation.family},
          {"operation", operation.operation},
          {"phase", operation.phase},
          {"sync_only", operation.sync_only},
          {"kernels", operation.kernels},
          {"us", us(operation.us)},
          {"exposed_us", us(operation.exposed_us)},
          {"share", ratio(operation.share)},
          {"shortest_us", us(operation.shortest_us)},
          {"longest_us", us(operation.longest_us)},
          {"longest_rank", rank_or_null(operation.longest_rank)}};
}

Json device_json(const BillTraceDevice& device) {
  return {{"rank", rank_or_null(device.rank)},
          {"device", device.device},
          {"copy_us", us(device.copy_us)},
          {"idle_us", us(device.idle_us)},
          {"idle_host_us", us(device.idle_host_us)},
          {"sync_us", us(device.sync_us)},
          {"clock_offset_us", us(device.clock_offset_us)}};
}

Json unknown_json(const BillTraceName& name) {
  return {{"name", name.name}, {"kernels", name.kernels}, {"us", us(name.us)}};
}

template <class T>
Json array_of(const std::vector<T>& items, Json (*one)(const T&)) {
  Json array = Json::array();
  for (const T& item : items) array.push_back(one(item));
  return array;
}

Json trace_json(const BillTrace& trace) {
  return {{"devices", array_of(trace.devices, device_json)},
          {"operations", array_of(trace.operations, operation_json)},
          {"unknown", array_of(trace.unknown, unknown_json)},
          {"steps_us", stats_json(trace.steps_us)},
          {"residual_us", us(trace.residual_us)},
          {"matched", trace.matched},
          {"unmatched", trace.unmatched},
          {"notes", trace.notes}};
}

}  // namespace

std::string to_json(const Bill& bill) {
  Json json = {{"schema", "moetax.bill/1"},
               {"tool_version", bill.tool_version},
               {"machine", machine_json(bill)},
               {"config", config_json(bill)},
               {"step_us", stats_json(bill.step_us)},
               {"tax",
                {{"share", ratio(bill.tax.share)},
                 {"us", us(bill.tax.us)},
                 {"pack_us", us(bill.tax.pack_us)},
                 {"wire_us", us(bill.tax.wire_us)},
                 {"wait_us", us(bill.tax.wait_us)},
                 {"launch_us", us(bill.tax.launch_us)}}},
               {"comm_us", us(bill.comm_us)},
               {"exposed_us", us(bill.exposed_us)},
               {"hidden_us", us(bill.hidden_us)},
               {"compute_us", us(bill.compute_us)},
               {"other_us", us(bill.other_us)},
               {"gflops", ratio(bill.gflops)},
               {"ranks", array_of(bill.ranks, rank_json)},
               {"exchanges", array_of(bill.exchanges, exchange_json)},
               {"links", array_of(bill.links, link_json)},
               {"choices", array_of(bill.choices, choice_json)},
               {"decomposition", array_of(bill.decomposition, decomposition_json)},
               {"stress", array_of(bill.stress, stress_json)},
               {"routing", known(bill, routing_json(bill.routing))},
               {"memory", known(bill, {{"weight_bytes", bill.weight_bytes},
                                       {"rows_reserved_bytes", bill.rows_reserved_bytes},
                                       {"rows_touched_bytes", bill.rows_touched_bytes}})},
               {"records_dropped", bill.records_dropped},
               {"output_hash", bill.output_hash.empty() ? Json(nullptr) : Json(bill.output_hash)},
               {"findings", array_of(bill.findings, finding_json)}};
  if (!bill.sources.empty()) json["sources"] = array_of(bill.sources, source_json);
  if (bill.trace) json["trace"] = trace_json(*bill.trace);
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace moetax
