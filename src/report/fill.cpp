// From the ranks' ledgers to the numbers of the bill. Definitions: docs/bill.md.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "moetax/base/clock.h"
#include "moetax/report/bill.h"
#include "report/format.h"
#include "report/links.h"
#include "report/load.h"
#include "report/waits.h"

namespace moetax {
namespace {

std::size_t common_steps(const std::vector<RankLedger>& ledgers) {
  if (ledgers.empty()) return 0;
  std::size_t steps = ledgers.front().steps.size();
  for (const RankLedger& ledger : ledgers) steps = std::min(steps, ledger.steps.size());
  return steps;
}

double part_us(const PartTimes& parts, Part part) {
  return static_cast<double>(parts[static_cast<std::size_t>(part)]) * 1e-3;
}

BillRank fill_rank(const RankLedger& ledger, std::size_t steps) {
  BillRank rank;
  rank.rank = ledger.rank;
  rank.node = ledger.node;
  double pack = 0, wire = 0, wait = 0, launch = 0;
  const double scale = steps > 0 ? 1.0 / static_cast<double>(steps) : 0;
  for (std::size_t i = 0; i < steps; ++i) {
    const StepRecord& step = ledger.steps[i];
    rank.step_us += static_cast<double>(step.end_ns - step.start_ns) * 1e-3 * scale;
    rank.compute_us += part_us(step.part_ns, Part::kCompute) * scale;
    pack += part_us(step.part_ns, Part::kPack) * scale;
    wire += part_us(step.part_ns, Part::kWire) * scale;
    wait += part_us(step.part_ns, Part::kWait) * scale;
    launch += part_us(step.part_ns, Part::kLaunch) * scale;
    rank.other_us += part_us(step.part_ns, Part::kOther) * scale;
    rank.hidden_us += static_cast<double>(step.hidden_ns) * 1e-3 * scale;
  }
  rank.pack_us = pack;
  rank.wire_us = wire;
  rank.wait_us = wait;
  rank.launch_us = launch;
  rank.exposed_us = wire + wait + launch;
  rank.comm_us = rank.exposed_us + rank.hidden_us;
  return rank;
}

// A step's length is its mean over ranks: their sum of parts is what the bill accounts for.
BillStats fill_steps(const std::vector<RankLedger>& ledgers, std::size_t steps) {
  std::vector<double> samples(steps, 0.0);
  for (const RankLedger& ledger : ledgers) {
    for (std::size_t i = 0; i < steps; ++i) {
      const double ns = static_cast<double>(ledger.steps[i].end_ns - ledger.steps[i].start_ns);
      samples[i] += ns * 1e-3 / static_cast<double>(ledgers.size());
    }
  }
  return stats_of(std::move(samples));
}

void fill_means(Bill& bill) {
  double pack = 0, wire = 0, wait = 0, launch = 0;
  for (const BillRank& rank : bill.ranks) {
    const double share = 1.0 / static_cast<double>(bill.ranks.size());
    pack += rank.pack_us.value_or(0) * share;
    wire += rank.wire_us.value_or(0) * share;
    wait += rank.wait_us.value_or(0) * share;
    launch += rank.launch_us.value_or(0) * share;
    bill.compute_us += rank.compute_us * share;
    bill.other_us += rank.other_us * share;
    bill.hidden_us += rank.hidden_us * share;
  }
  bill.tax.pack_us = pack;
  bill.tax.wire_us = wire;
  bill.tax.wait_us = wait;
  bill.tax.launch_us = launch;
  bill.tax.us = pack + wire + wait + launch;
  bill.tax.share = bill.step_us.mean > 0 ? bill.tax.us / bill.step_us.mean : 0;
  bill.exposed_us = wire + wait + launch;
  bill.comm_us = bill.exposed_us + bill.hidden_us;
}

// What is summed up over the calls of one kind of exchange, on all ranks.
struct ExchangeSum {
  std::vector<double> us;
  double wait_us = 0, transfer_us = 0, logical = 0, physical = 0, internode = 0;
  std::map<Rank, int> last;
  std::int64_t calls = 0;                                                // of the rank that made the most
  std::map<std::pair<int, std::int64_t>, std::vector<Period>> together;  // by group of ranks and call

  void add(const LedgerExchange& exchange) {
    us.push_back(static_cast<double>(exchange.end_ns - exchange.start_ns) * 1e-3);
    wait_us += static_cast<double>(exchange.wait_ns) * 1e-3;
    transfer_us += static_cast<double>(exchange.transfer_ns) * 1e-3;
    logical += static_cast<double>(exchange.logical_bytes);
    physical += static_cast<double>(exchange.physical_bytes);
    internode += static_cast<double>(exchange.internode_bytes);
    if (exchange.wait_ns > 0 && exchange.last_rank != kNoRank) ++last[exchange.last_rank];
  }
};

// The median over calls, which all ranks of a group make together.
std::optional<double> median_span_us(const ExchangeSum& sum) {
  std::vector<double> us;
  for (const auto& [call, periods] : sum.together) us.push_back(span_us(periods));
  if (us.empty()) return std::nullopt;
  return stats_of(std::move(us)).p50;
}

BillExchange summarise(const std::tuple<std::string, std::string, std::string>& key, const ExchangeSum& sum,
                       double steps) {
  BillExchange out;
  std::tie(out.name, out.phase, out.family) = key;
  const BillStats us = stats_of(sum.us);
  const double samples = static_cast<double>(sum.us.size());
  out.calls = sum.calls;
  out.logical_bytes = std::llround(sum.logical / steps);
  out.physical_bytes = std::llround(sum.physical / steps);
  out.internode_bytes = std::llround(sum.internode / steps);
  out.us = us.mean;
  out.std_us = us.std;
  out.wait_us = sum.wait_us / samples;
  out.transfer_us = sum.transfer_us / samples;
  if (out.family == "all-to-all") out.span_us = median_span_us(sum);
  if (sum.transfer_us > 0 && sum.physical > 0) out.gbs = sum.physical / sum.transfer_us * 1e-3;
  int most = 0;
  for (const auto& [rank, times] : sum.last) {
    if (times > most) {
      most = times;
      out.last_rank = rank;
    }
  }
  return out;
}

void fill_exchanges(const std::vector<RankLedger>& ledgers, std::size_t steps, Bill& bill) {
  using Key = std::tuple<std::string, std::string, std::string>;
  std::map<Key, ExchangeSum> sums;
  const int group = std::max(1, bill.config.ep_size.value_or(bill.config.ranks));
  std::vector<Key> order;  // as first seen, which is the order of the data
  for (const RankLedger& ledger : ledgers) {
    const auto name = [&ledger](std::int32_t i) { return ledger.names[static_cast<std::size_t>(i)]; };
    std::map<Key, std::int64_t> calls;
    for (const LedgerExchange& exchange : ledger.exchanges) {
      if (static_cast<std::size_t>(exchange.step) >= steps) continue;
      const Key key{name(exchange.name), name(exchange.phase), name(exchange.family)};
      const auto [at, is_new] = sums.try_emplace(key);
      if (is_new) order.push_back(key);
      at->second.add(exchange);
      at->second.together[{ledger.rank / group, calls[key]}].push_back(
          {exchange.start_ns + ledger.clock_offset_ns, exchange.end_ns + ledger.clock_offset_ns});
      at->second.calls = std::max(at->second.calls, ++calls[key]);
    }
  }
  for (const Key& key : order) bill.exchanges.push_back(summarise(key, sums[key], static_cast<double>(steps)));
}

// One line for all ranks: the common placement, or where each rank is, the middle ones left out when there are many.
std::string pinning_line(const std::vector<RankLedger>& ledgers) {
  constexpr std::size_t kShown = 4;
  if (ledgers.empty()) return "";
  const std::string& first = ledgers.front().pinning;
  if (std::all_of(ledgers.begin(), ledgers.end(), [&](const RankLedger& l) { return l.pinning == first; }))
    return first;
  std::vector<std::string> items;
  for (std::size_t i = 0; i < ledgers.size(); ++i) {
    const bool last = i + 1 == ledgers.size();
    if (i < kShown || last) items.push_back(fmt::format("rank {}: {}", ledgers[i].rank, ledgers[i].pinning));
    if (i == kShown && !last) items.emplace_back("...");
  }
  return fmt::format("{}", fmt::join(items, "; "));
}

void fill_totals(const std::vector<RankLedger>& ledgers, Bill& bill) {
  double flops = 0;
  bill.rows_reserved_bytes = bill.rows_touched_bytes = bill.weight_bytes = bill.records_dropped = 0;
  for (const RankLedger& ledger : ledgers) {
    flops += ledger.flops;
    bill.rows_reserved_bytes += ledger.rows_reserved_bytes;
    bill.rows_touched_bytes += ledger.rows_touched_bytes;
    bill.weight_bytes += ledger.weight_bytes;
    bill.records_dropped += ledger.records_dropped;
  }
  bill.pinning = pinning_line(ledgers);
  bill.gflops.reset();
  if (flops > 0 && bill.step_us.mean > 0) bill.gflops = flops / (bill.step_us.mean * 1e3);
}

}  // namespace

BillStats stats_of(std::vector<double> samples) {
  BillStats stats;
  stats.count = static_cast<std::int64_t>(samples.size());
  if (samples.empty()) return stats;
  std::sort(samples.begin(), samples.end());
  const double count = static_cast<double>(samples.size());
  for (const double sample : samples) stats.mean += sample / count;
  double squares = 0;
  for (const double sample : samples) squares += (sample - stats.mean) * (sample - stats.mean);
  stats.std = samples.size() > 1 ? std::sqrt(squares / (count - 1)) : 0;
  const auto quantile = [&](double q) {  // nearest rank
    return samples[static_cast<std::size_t>(std::max(std::ceil(q * count) - 1, 0.0))];
  };
  stats.p50 = quantile(0.50);
  stats.p95 = quantile(0.95);
  stats.p99 = quantile(0.99);
  stats.min = samples.front();
  stats.max = samples.back();
  return stats;
}

void fill_bill(const std::vector<RankLedger>& ledgers, Bill& bill) {
  const std::size_t steps = common_steps(ledgers);
  bill.ranks.clear();
  bill.exchanges.clear();
  bill.links.clear();
  bill.findings.clear();
  bill.compute_us = bill.other_us = bill.hidden_us = 0;
  for (const RankLedger& ledger : ledgers) bill.ranks.push_back(fill_rank(ledger, steps));
  bill.step_us = fill_steps(ledgers, steps);
  fill_means(bill);
  fill_totals(ledgers, bill);

  const report::ExpertLoad load = report::measure_load(ledgers, bill.config);
  report::fill_routing(load, bill.routing);
  if (load.known()) {
    for (std::size_t r = 0; r < bill.ranks.size(); ++r) bill.ranks[r].expert_rows = load.rows(static_cast<Rank>(r));
  }
  if (steps == 0) return;
  fill_exchanges(ledgers, steps, bill);
  bill.links = report::find_links(ledgers);
  report::explain_waits(ledgers, steps, load, bill);
}

}  // namespace moetax
