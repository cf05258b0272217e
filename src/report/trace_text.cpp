#include "report/trace_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "report/format.h"
#include "report/table.h"

namespace moetax::report {
namespace {

constexpr std::size_t kMostRows = 16;
constexpr std::size_t kMostWaits = 12;

template <class... Args>
void line(std::string& out, fmt::format_string<Args...> format, Args&&... args) {
  fmt::format_to(std::back_inserter(out), format, std::forward<Args>(args)...);
  out += '\n';
}

std::string optional_time(const std::optional<double>& us) {
  return us ? time_text(*us) : "?";
}

// Whom most was waited for, in all.
std::optional<std::pair<Rank, double>> most_waited_for(const Bill& bill) {
  std::optional<std::pair<Rank, double>> most;
  for (const BillRank& late : bill.ranks) {
    double us = 0;
    for (const BillRank& rank : bill.ranks) {
      for (const BillWaitedFor& waited : rank.waited_for) us += waited.rank == late.rank ? waited.us : 0;
    }
    if (us > 0 && (!most || us > most->second)) most = std::pair(late.rank, us);
  }
  return most;
}

std::string verdict(const Bill& bill) {
  if (bill.ranks.empty()) return "No work on a device: there is nothing to bill.";
  std::string text =
      fmt::format("Tax {} of a window of {}: {} of communication are exposed", percent_text(bill.tax.share),
                  time_text(bill.step_us.mean), time_text(bill.exposed_us));
  if (bill.comm_us > 0) text += fmt::format(", {} hidden under compute", percent_text(bill.hidden_us / bill.comm_us));
  text += ".";
  const auto most = most_waited_for(bill);
  if (bill.tax.wait_us && bill.exposed_us > 0 && most) {
    text += fmt::format(" {} of the exposed time is waiting, most of it for rank {}.",
                        percent_text(*bill.tax.wait_us / bill.exposed_us), most->first);
  }
  return text;
}

void add_head(const Bill& bill, std::string& out) {
  out += wrap(verdict(bill), 0) + "\n";
  const BillTrace& trace = *bill.trace;
  const auto used =
      std::count_if(bill.sources.begin(), bill.sources.end(), [](const BillSource& source) { return source.used > 0; });
  std::string job = fmt::format("job      {} from {}", plural(bill.ranks.size(), "device"),
                                plural(static_cast<std::size_t>(used), "file"));
  if (!trace.models.empty()) job += fmt::format(" ({})", join(trace.models));
  out += wrap(job, 9);
  const BillStats& steps = trace.steps_us;
  if (steps.count > 0) {
    out += wrap(fmt::format("steps    {} on the host: mean {}, p50 {}, {} to {}",
                            plural(static_cast<std::size_t>(steps.count), "step"), time_text(steps.mean),
                            time_text(steps.p50), time_text(steps.min), time_text(steps.max)),
                9);
  }
  if (trace.residual_us) {
    out +=
        wrap(fmt::format("clocks   aligned by {}, half of their ends within {}",
                         plural(static_cast<std::size_t>(trace.matched), "collective"), time_text(*trace.residual_us)),
             9);
  }
}

void add_ranks(const Bill& bill, std::string& out) {
  line(out, "\nRanks (exposed = wire + wait; window = compute + exposed + copies + idle)");
  Table table({{"rank"},
               {"window"},
               {"compute"},
               {"exposed"},
               {"wire"},
               {"wait"},
               {"hidden"},
               {"copies"},
               {"idle"},
               {"for host"},
               {"share"}});
  for (std::size_t i = 0; i < std::min(bill.ranks.size(), kMostRows); ++i) {
    const BillRank& rank = bill.ranks[i];
    const BillTraceDevice& device = bill.trace->devices[i];
    table.add({fmt::format("{}", rank.rank), time_text(rank.step_us), time_text(rank.compute_us),
               time_text(rank.exposed_us), optional_time(rank.wire_us), optional_time(rank.wait_us),
               time_text(rank.hidden_us), time_text(device.copy_us), time_text(device.idle_us),
               optional_time(device.idle_host_us),
               percent_text(rank.step_us > 0 ? rank.exposed_us / rank.step_us : 0)});
  }
  out += table.text();
  if (bill.ranks.size() > kMostRows) line(out, "  and {} more (--json has all)", bill.ranks.size() - kMostRows);
}

void add_operations(const Bill& bill, std::string& out) {
  if (bill.trace->operations.empty()) return;
  line(out, "\nCommunication (per rank; share of the time of all communication kernels)");
  Table table({{"family", Align::kLeft},
               {"operation", Align::kLeft},
               {"phase", Align::kLeft},
               {"kernels"},
               {"time"},
               {"exposed"},
               {"share"},
               {"wait"},
               {"transfer"},
               {"GB/s"},
               {"last"}});
  for (std::size_t i = 0; i < std::min(bill.exchanges.size(), kMostRows); ++i) {
    const BillTraceOperation& row = bill.trace->operations[i];
    const BillExchange& exchange = bill.exchanges[i];
    table.add({row.family, row.operation + (row.sync_only ? " (sync)" : ""), row.phase, fmt::format("{}", row.kernels),
               time_text(row.us), time_text(row.exposed_us), percent_text(row.share), optional_time(exchange.wait_us),
               optional_time(exchange.transfer_us), exchange.gbs ? digits3(*exchange.gbs) : "?",
               exchange.last_rank == kNoRank ? "?" : fmt::format("{}", exchange.last_rank)});
  }
  out += table.text();
  double sync = 0;
  for (const BillTraceOperation& row : bill.trace->operations) {
    if (row.sync_only) sync += row.share;
    if (!row.longest_us) continue;
    out +=
        wrap(fmt::format("  {} {}: rank {} spends {} in calls whose shortest ranks need {}", row.family, row.operation,
                         row.longest_rank, time_text(*row.longest_us), time_text(row.shortest_us.value_or(0))),
             4);
  }
  if (sync > 0) line(out, "  {} of it is synchronisation that moves no tokens", percent_text(sync));
}

void add_waits(const Bill& bill, std::string& out) {
  std::vector<std::pair<Rank, const BillWaitedFor*>> waits;
  for (const BillRank& rank : bill.ranks) {
    for (const BillWaitedFor& waited : rank.waited_for) waits.emplace_back(rank.rank, &waited);
  }
  if (waits.empty()) return;
  std::stable_sort(waits.begin(), waits.end(),
                   [](const auto& a, const auto& b) { return a.second->us > b.second->us; });
  line(out, "\nWho waited for whom, and what the late one did meanwhile");
  for (std::size_t i = 0; i < std::min(waits.size(), kMostWaits); ++i) {
    const BillWaitedFor& waited = *waits[i].second;
    out += wrap(fmt::format("  rank {} for rank {}: {}; {}", waits[i].first, waited.rank, time_text(waited.us),
                            waited.cause_text),
                4);
  }
  if (waits.size() > kMostWaits) line(out, "  and {} more (--json has all)", waits.size() - kMostWaits);
}

void add_unknown(const Bill& bill, std::string& out) {
  if (bill.trace->unknown.empty()) return;
  line(out, "\nNames that look like communication and are in no rule (counted as compute; --rules FILE adds them)");
  for (std::size_t i = 0; i < std::min(bill.trace->unknown.size(), kMostRows); ++i) {
    const BillTraceName& name = bill.trace->unknown[i];
    out += wrap(fmt::format("  {}: {}, {}", shorten(name.name, 60),
                            plural(static_cast<std::size_t>(name.kernels), "kernel"), time_text(name.us)),
                4);
  }
}

void add_sources(const Bill& bill, std::string& out) {
  std::size_t whole = 0;
  for (const BillSource& source : bill.sources) {
    if (source.why.empty()) {
      ++whole;
    } else {
      out += wrap(fmt::format("  {}: {}", source.file, source.why), 4);
    }
  }
  if (whole > 0) line(out, "  {} read whole", plural(whole, "file"));
}

}  // namespace

std::string trace_text(const Bill& bill) {
  std::string out;
  add_head(bill, out);
  if (!bill.ranks.empty()) {
    add_ranks(bill, out);
    add_operations(bill, out);
    add_waits(bill, out);
    add_unknown(bill, out);
  }
  line(out, "\nWhat this rests on");
  for (const std::string& note : bill.trace->notes) out += wrap("  " + note, 4);
  add_sources(bill, out);
  return out;
}

}  // namespace moetax::report
