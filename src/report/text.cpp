// The bill for people: the verdict first, then what it rests on. At most kColumns columns.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include "moetax/report/bill.h"
#include "report/format.h"
#include "report/load.h"
#include "report/table.h"
#include "report/trace_text.h"

namespace moetax {
namespace {

using namespace report;  // NOLINT(google-build-using-namespace): the room's own helpers

constexpr std::size_t kAllRanks = 16;   // up to here every rank has its row
constexpr std::size_t kWorstRanks = 8;  // beyond, these
constexpr std::size_t kWaitLines = 12;
constexpr std::size_t kBarColumns = 40;

template <class... Args>
void line(std::string& out, fmt::format_string<Args...> format, Args&&... args) {
  fmt::format_to(std::back_inserter(out), format, std::forward<Args>(args)...);
  out += '\n';
}

std::string optional_time(const std::optional<double>& us) {
  return us ? time_text(*us) : "?";
}

// ---- head --------------------------------------------------------------------------------------------------------

std::string verdict(const Bill& bill) {
  if (bill.step_us.count == 0) return wrap("No step was measured: there is nothing to bill.", 0);
  std::string text = fmt::format("Tax {} of a {} step.", percent_text(bill.tax.share), time_text(bill.step_us.mean));
  if (!bill.findings.empty()) {
    const BillFinding& first = bill.findings.front();
    if (first.id == "tax-small") {
      text += fmt::format(" No bottleneck: {}.", first.title);
    } else {
      text += fmt::format(" Bottleneck: {}.", first.title);
    }
  }
  return wrap(text, 0);
}

// "512 tokens per rank", "128 to 512 tokens per rank".
std::string tokens_line(const BillConfig& config) {
  if (config.tokens_per_rank.empty()) return "tokens unknown";
  const auto [low, high] = std::minmax_element(config.tokens_per_rank.begin(), config.tokens_per_rank.end());
  return *low == *high ? fmt::format("{} tokens per rank", *low) : fmt::format("{} to {} tokens per rank", *low, *high);
}

// "2 layers with backward, activations recomputed".
std::string layers_line(const BillConfig& config) {
  std::string text = plural(static_cast<std::size_t>(std::max(config.layers, 0)), "layer");
  if (config.backward) text += " with backward";
  if (config.recompute) text += ", activations recomputed";
  return text;
}

std::string config_line(const BillConfig& config) {
  std::vector<std::string> items;
  if (!config.model.empty()) items.push_back(config.model);
  const auto ranks = static_cast<std::size_t>(std::max(config.ranks, 0));
  const auto threads = static_cast<std::size_t>(std::max(config.threads, 0));
  items.push_back(fmt::format("{} of {}", plural(ranks, "rank"), plural(threads, "thread")));
  const std::string hosts = config.hosts.empty() ? "" : fmt::format(" ({})", join(config.hosts));
  if (config.nodes > 1) items.push_back(fmt::format("{} nodes{}", config.nodes, hosts));
  if (config.ep_size && *config.ep_size > 0 && *config.ep_size < config.ranks) {
    items.push_back(fmt::format("{} replicas of the experts", config.ranks / *config.ep_size));
  }
  items.push_back(tokens_line(config));
  items.push_back(fmt::format("H={} I={} E={} K={}", config.hidden, config.inter, config.experts, config.topk));
  if (config.shared > 0) items.push_back(fmt::format("shared I={}", config.shared));
  items.push_back(layers_line(config));
  items.push_back(config.dtype);
  items.push_back(fmt::format("wire {}/{}", config.wire_dispatch, config.wire_combine));
  items.push_back(fmt::format("routing {}", config.routing));
  items.push_back(fmt::format("exchange {}", config.exchange));
  if (!config.costs.empty()) items.push_back(fmt::format("costs from {}", config.costs));
  if (!config.transport.empty()) items.push_back(config.transport);
  items.push_back(fmt::format("overlap {}", config.overlap));
  items.push_back(fmt::format("{} mode", config.mode));
  items.push_back(fmt::format("seed {}", config.seed));
  for (const BillDelay& delay : config.delays) {
    items.push_back(fmt::format("rank {} delayed by {}", delay.rank, time_text(delay.ms * 1e3)));
  }
  return join(items);
}

std::string machine_line(const Bill& bill) {
  const HostInfo& host = bill.machine;
  std::vector<std::string> items;
  if (!host.cpu.empty()) items.push_back(host.cpu);
  if (!host.isa.empty()) items.push_back(host.isa);
  items.push_back(plural(static_cast<std::size_t>(std::max(host.cores, 0)), "core"));
  if (host.memory_bytes > 0) items.push_back(bytes_text(static_cast<double>(host.memory_bytes)));
  const std::string mpi = bill.mpi.empty() ? "" : "MPI " + bill.mpi;
  for (const std::string* text : {&host.kernel, &bill.gemm, &mpi, &bill.pinning, &host.huge_pages}) {
    if (!text->empty()) items.push_back(*text);
  }
  return fmt::format("{}", fmt::join(items, "; "));
}

std::string steps_line(const Bill& bill) {
  const BillStats& step = bill.step_us;
  std::string text = fmt::format("{} after {} to warm up: mean {}, deviation {}, p50 {}, p95 {}, p99 {}, {} to {}",
                                 plural(static_cast<std::size_t>(step.count), "step"), bill.config.warmup,
                                 time_text(step.mean), time_text(step.std), time_text(step.p50), time_text(step.p95),
                                 time_text(step.p99), time_text(step.min), time_text(step.max));
  const auto tokens = static_cast<double>(
      std::accumulate(bill.config.tokens_per_rank.begin(), bill.config.tokens_per_rank.end(), std::int64_t{0}));
  if (step.mean > 0 && tokens > 0) text += fmt::format("; {} tokens/s", count_text(tokens / (step.mean * 1e-6)));
  if (bill.gflops) text += "; " + flops_text(*bill.gflops);
  return text;
}

void add_head(const Bill& bill, std::string& out) {
  out += verdict(bill);
  out += '\n';
  out += wrap("run      " + config_line(bill.config), 9);
  out += wrap("machine  " + machine_line(bill), 9);
  if (bill.step_us.count > 0) out += wrap("steps    " + steps_line(bill), 9);
}

// ---- parts -------------------------------------------------------------------------------------------------------

void add_part(const char* name, const std::optional<double>& us, const Bill& bill, std::string& out) {
  const double share = bill.step_us.mean > 0 ? us.value_or(0) / bill.step_us.mean : 0;
  line(out, "  {:<8}{:>10}{:>9}  {}", name, optional_time(us), us ? percent_text(share) : "?",
       bar(share, static_cast<int>(kBarColumns)));
  if (out[out.size() - 2] == ' ') out.erase(out.find_last_not_of(" \n") + 1), out += '\n';
}

void add_parts(const Bill& bill, std::string& out) {
  line(out, "\nWhere a step goes (mean over ranks and steps)");
  add_part("compute", bill.compute_us, bill, out);
  add_part("pack", bill.tax.pack_us, bill, out);
  add_part("wire", bill.tax.wire_us, bill, out);
  add_part("wait", bill.tax.wait_us, bill, out);
  add_part("launch", bill.tax.launch_us, bill, out);
  add_part("other", bill.other_us, bill, out);
  line(out, "  {:<8}{:>10}{:>9}  = pack + wire + wait + launch", "tax", time_text(bill.tax.us),
       percent_text(bill.tax.share));
  out += wrap(fmt::format("  exchanges {}: {} exposed (wire + wait + launch), {} hidden under compute",
                          time_text(bill.comm_us), time_text(bill.exposed_us), time_text(bill.hidden_us)),
              4);
}

// ---- ranks -------------------------------------------------------------------------------------------------------

// All ranks, or those that wait longest, then those that others wait for.
std::vector<std::size_t> shown_ranks(const Bill& bill) {
  std::vector<std::size_t> order(bill.ranks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (order.size() <= kAllRanks) return order;
  std::vector<double> weight;  // the waiting it does and causes
  for (const BillRank& rank : bill.ranks) weight.push_back(rank.wait_us.value_or(0));
  for (const BillRank& rank : bill.ranks) {
    for (const BillWaitedFor& waited : rank.waited_for) {
      if (waited.rank >= 0 && static_cast<std::size_t>(waited.rank) < weight.size()) {
        weight[static_cast<std::size_t>(waited.rank)] += waited.us;
      }
    }
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return weight[a] > weight[b]; });
  order.resize(kWorstRanks);
  std::sort(order.begin(), order.end());
  return order;
}

double mean_rows(const Bill& bill) {
  double rows = 0;
  for (const BillRank& rank : bill.ranks) rows += rank.expert_rows.value_or(0);
  return bill.ranks.empty() ? 0 : rows / static_cast<double>(bill.ranks.size());
}

std::string most_waited_for(const BillRank& rank) {
  if (rank.waited_for.empty()) return "";
  const BillWaitedFor& most = rank.waited_for.front();
  const std::string peer = most.rank == kNoRank ? "not named" : fmt::format("rank {}", most.rank);
  return fmt::format("{}: {}", peer, time_text(most.us));
}

void add_ranks(const Bill& bill, std::string& out) {
  Table table({{"rank"},
               {"step"},
               {"compute"},
               {"pack"},
               {"wire"},
               {"wait"},
               {"launch"},
               {"other"},
               {"rows"},
               {"waits most for", Align::kLeft}});
  const auto shown = shown_ranks(bill);
  const double mean = mean_rows(bill);
  for (const std::size_t i : shown) {
    const BillRank& rank = bill.ranks[i];
    std::string rows = "?";
    if (rank.expert_rows) rows = mean > 0 ? ratio_text(*rank.expert_rows / mean) : "-";
    table.add({std::to_string(rank.rank), time_text(rank.step_us), time_text(rank.compute_us),
               optional_time(rank.pack_us), optional_time(rank.wire_us), optional_time(rank.wait_us),
               optional_time(rank.launch_us), time_text(rank.other_us), rows, most_waited_for(rank)});
  }
  out += '\n' + table.text();
  if (shown.size() == bill.ranks.size()) return;
  const auto by_wait = [](const BillRank& a, const BillRank& b) {
    return a.wait_us.value_or(0) < b.wait_us.value_or(0);
  };
  const auto [least, most] = std::minmax_element(bill.ranks.begin(), bill.ranks.end(), by_wait);
  out += wrap(fmt::format("  and {} more ranks; waits from {} (rank {}) to {} (rank {}), mean {}",
                          bill.ranks.size() - shown.size(), optional_time(least->wait_us), least->rank,
                          optional_time(most->wait_us), most->rank, optional_time(bill.tax.wait_us)),
              4);
}

// One line: who waits how long for whom and why. Beyond kAllRanks all that wait for one peer share it.
struct WaitLine {
  Rank rank = kNoRank;  // who waits longest
  double us = 0;
  std::size_t waiters = 0;
  const BillWaitedFor* waited = nullptr;  // of the one who waits longest
};

std::vector<WaitLine> wait_lines(const Bill& bill) {
  const bool grouped = bill.ranks.size() > kAllRanks;
  std::vector<WaitLine> lines;
  for (const BillRank& rank : bill.ranks) {
    for (const BillWaitedFor& waited : rank.waited_for) {
      const auto same = std::find_if(lines.begin(), lines.end(),
                                     [&](const WaitLine& line) { return grouped && line.waited->rank == waited.rank; });
      WaitLine& entry = same == lines.end() ? lines.emplace_back() : *same;
      ++entry.waiters;
      if (entry.waited && entry.us >= waited.us) continue;
      entry.rank = rank.rank;
      entry.us = waited.us;
      entry.waited = &waited;
    }
  }
  std::stable_sort(lines.begin(), lines.end(), [](const WaitLine& a, const WaitLine& b) { return a.us > b.us; });
  return lines;
}

void add_waits(const Bill& bill, std::string& out) {
  const auto lines = wait_lines(bill);
  if (lines.empty()) return;
  line(out, "\nWho waits for whom, and why (per step)");
  for (std::size_t i = 0; i < std::min(lines.size(), kWaitLines); ++i) {
    const BillWaitedFor& waited = *lines[i].waited;
    const double explained = waited.by_cause_us[static_cast<std::size_t>(waited.cause)];
    const std::string peer = waited.rank == kNoRank ? "a peer not named" : fmt::format("rank {}", waited.rank);
    std::string why = waited.cause_text;
    if (waited.us > 0 && explained < 0.95 * waited.us)
      why += fmt::format(", {} of it", percent_text(explained / waited.us));
    if (lines[i].waiters > 1) why += fmt::format("; {} ranks wait for it, this one longest", lines[i].waiters);
    out += wrap(fmt::format("  rank {:<3} for {:<9}{:>9}  {}", lines[i].rank, peer, time_text(waited.us), why), 33);
  }
  if (lines.size() > kWaitLines) line(out, "  and {} shorter ones", lines.size() - kWaitLines);
}

// ---- exchanges, experts, memory, findings ------------------------------------------------------------------------

std::string calls_text(std::int64_t calls) {
  return calls < 100'000 ? std::to_string(calls) : count_text(static_cast<double>(calls));
}

void add_exchanges(const Bill& bill, std::string& out) {
  if (bill.exchanges.empty()) return;
  Table table({{"exchange", Align::kLeft},
               {"phase", Align::kLeft},
               {"calls"},
               {"per call"},
               {"std"},
               {"wait"},
               {"transfer"},
               {"logical"},
               {"physical"},
               {"GB/s"}});
  for (const BillExchange& x : bill.exchanges) {
    table.add({x.name, x.phase, calls_text(x.calls), time_text(x.us), time_text(x.std_us), optional_time(x.wait_us),
               optional_time(x.transfer_us), bytes_text(static_cast<double>(x.logical_bytes)),
               bytes_text(static_cast<double>(x.physical_bytes)), x.gbs ? digits3(*x.gbs) : "-"});
  }
  out += '\n' + table.text();
  line(out, "  times per call, mean over ranks; bytes per step, all ranks; GB/s per rank while transferring");
}

void add_predictions(const Bill& bill, std::string& out) {
  Table table({{"exchange", Align::kLeft},
               {"phase", Align::kLeft},
               {"together"},
               {"predicted"},
               {"off"},
               {"GB/s"},
               {"roof"},
               {"reached"}});
  bool any = false;
  for (const BillExchange& x : bill.exchanges) {
    if (!x.predicted_us) continue;
    any = true;
    table.add({x.name, x.phase, optional_time(x.span_us), time_text(*x.predicted_us),
               x.prediction_error ? fmt::format("{:+.1f} %", 100 * *x.prediction_error) : "-",
               x.gbs ? digits3(*x.gbs) : "-", x.roof_gbs ? digits3(*x.roof_gbs) : "-",
               x.roof_share ? percent_text(*x.roof_share) : "-"});
  }
  if (!any) return;
  out += '\n' + table.text();
  out += wrap(
      "  together: from when all ranks had come until all were done, median; the roof is what the links of a rank "
      "carry, GB/s",
      4);
}

void add_choices(const Bill& bill, std::string& out) {
  if (bill.choices.empty()) return;
  line(out, "\nExchanges chosen");
  for (const BillChoice& choice : bill.choices) {
    out += wrap(fmt::format("  after {}: {}, because {}", plural(static_cast<std::size_t>(choice.after_steps), "step"),
                            choice.exchange, choice.why),
                4);
  }
}

void add_decomposition(const Bill& bill, std::string& out) {
  if (bill.decomposition.empty()) return;
  Table table({{"exchange", Align::kLeft},
               {"call", Align::kLeft},
               {"start-up"},
               {"bandwidth"},
               {"hops"},
               {"copies"},
               {"sync"},
               {"sum"},
               {"measured"},
               {"off"}});
  for (const BillDecomposition& of : bill.decomposition) {
    const CallCost& cost = of.predicted;
    table.add({of.exchange, of.name, time_text(cost.start_up_us), time_text(cost.bandwidth_us), time_text(cost.hops_us),
               time_text(cost.copy_us), time_text(cost.sync_us), time_text(cost.total_us()), time_text(of.span_us),
               of.span_us > 0 ? fmt::format("{:+.1f} %", 100 * (cost.total_us() / of.span_us - 1)) : "-"});
  }
  line(out, "\nWhat each exchange costs for this routing, and why");
  out += table.text();
}

std::string load_text(const BillStress& load) {
  if (load.concurrency > 0) return fmt::format("{} at a time", load.concurrency);
  return fmt::format("{}/s", digits3(load.rate));
}

void add_stress(const Bill& bill, std::string& out) {
  if (bill.stress.empty()) return;
  Table table({{"request", Align::kLeft},
               {"load", Align::kLeft},
               {"ranks", Align::kLeft},
               {"tokens/s"},
               {"mean"},
               {"P50"},
               {"P95"},
               {"P99"},
               {"step"},
               {"tax"}});
  for (const BillStress& load : bill.stress) {
    const BillStats& latency = load.latency_us;
    table.add({fmt::format("{}+{}", load.prompt, load.output), load_text(load),
               load.replicas ? "replicas" : "with exchange", count_text(load.tokens_per_s), time_text(latency.mean),
               time_text(latency.p50), time_text(latency.p95), time_text(latency.p99), time_text(load.step_us),
               percent_text(load.tax_share)});
  }
  line(out, "\nUnder load: requests of so many tokens in and out, their latency from arrival");
  out += table.text();
  const bool beside =
      std::any_of(bill.stress.begin(), bill.stress.end(), [](const auto& load) { return load.replicas; });
  if (beside) {
    out += wrap(
        "  replicas hold all experts each and exchange nothing: what they lose is sharing this machine, not tax", 4);
  }
}

void add_experts(const Bill& bill, std::string& out) {
  const BillRouting& routing = bill.routing;
  if (routing.expert_tokens.empty() || routing.expert_max_over_mean <= 0) return;
  line(out, "\nExpert load (last step)");
  std::string ranks = routing.rank_max_over_mean ? ratio_text(*routing.rank_max_over_mean) : "unknown";
  out += wrap(fmt::format("  max/mean {} per expert, {} per rank; entropy {} of {} bits; {} never chosen",
                          ratio_text(routing.expert_max_over_mean), ranks, digits3(routing.entropy_bits),
                          digits3(routing.entropy_max_bits), routing.experts_never_chosen),
              4);
  if (routing.dropped_tokens > 0) line(out, "  {} tokens dropped", routing.dropped_tokens);
  const std::size_t layer = worst_layer(routing.expert_tokens);
  const auto& tokens = routing.expert_tokens[layer];
  std::vector<std::string> hot;
  for (const int expert : hottest(tokens, 6, 0, static_cast<int>(tokens.size()))) {
    hot.push_back(fmt::format("{} ({} tokens)", expert, tokens[static_cast<std::size_t>(expert)]));
  }
  const std::string where = routing.expert_tokens.size() > 1 ? fmt::format(" of layer {}", layer) : "";
  out += wrap(fmt::format("  hottest experts{}: {}", where, join(hot)), 4);
}

void add_memory(const Bill& bill, std::string& out) {
  line(out, "\nMemory (all ranks): weights {}, rows {} reserved, {} touched",
       bytes_text(static_cast<double>(bill.weight_bytes)), bytes_text(static_cast<double>(bill.rows_reserved_bytes)),
       bytes_text(static_cast<double>(bill.rows_touched_bytes)));
  if (!bill.output_hash.empty()) line(out, "Output hash: {}", shorten(bill.output_hash, 80));
}

void add_findings(const Bill& bill, std::string& out) {
  if (bill.findings.empty()) return;
  line(out, "\nWhat would cut it (estimates are upper bounds from this bill, each on its own)");
  int number = 0;
  for (const BillFinding& finding : bill.findings) {
    std::string gain;
    if (finding.gain_us_estimate) {
      const double share = bill.step_us.mean > 0 ? *finding.gain_us_estimate / bill.step_us.mean : 0;
      gain = fmt::format(": at most {}, {} of the step", time_text(*finding.gain_us_estimate), percent_text(share));
    }
    out += wrap(fmt::format("  {}. {}{}", ++number, finding.id, gain), 5);
    out += wrap("     " + finding.title, 5);
    if (!finding.cause.empty()) {
      out += wrap(
          fmt::format("     why: {}{}", finding.cause, finding.evidence.empty() ? "" : " (" + finding.evidence + ")"),
          5);
    }
    if (!finding.fix.empty()) out += wrap("     fix: " + finding.fix, 5);
  }
}

}  // namespace

std::string to_text(const Bill& bill) {
  if (bill.trace) return trace_text(bill);
  std::string out;
  add_head(bill, out);
  if (bill.step_us.count > 0) {
    add_parts(bill, out);
    add_ranks(bill, out);
    add_waits(bill, out);
    add_exchanges(bill, out);
    add_predictions(bill, out);
    add_decomposition(bill, out);
  }
  add_choices(bill, out);
  add_stress(bill, out);
  add_experts(bill, out);
  add_memory(bill, out);
  add_findings(bill, out);
  return out;
}

}  // namespace moetax
