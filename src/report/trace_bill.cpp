// What was found in traces, in the words of the bill. Its step is the window of the devices' work.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "moetax/report/bill.h"
#include "report/format.h"
#include "report/waits.h"

namespace moetax {
namespace {

using report::percent_text;
using report::time_text;

double to_us(std::int64_t ns) {
  return static_cast<double>(ns) * 1e-3;
}

std::optional<double> to_us(const std::optional<std::int64_t>& ns) {
  return ns ? std::optional(to_us(*ns)) : std::nullopt;
}

// Traces without a number of their own count as they come.
Rank rank_of(const DeviceTimes& times, std::size_t index, bool by_device) {
  return times.rank == kNoRank || by_device ? static_cast<Rank>(index) : times.rank;
}

// Ranks name devices unless several share one.
bool ranks_repeat(const Analysis& analysis) {
  std::set<Rank> ranks;
  for (const DeviceTimes& times : analysis.devices) {
    if (times.rank == kNoRank || !ranks.insert(times.rank).second) return true;
  }
  return false;
}

BillRank rank_row(const DeviceTimes& times, Rank rank) {
  BillRank row;
  row.rank = rank;
  row.step_us = to_us(times.end_ns - times.begin_ns);
  row.compute_us = to_us(times.compute_ns);
  row.comm_us = to_us(times.comm_ns);
  row.exposed_us = to_us(times.exposed_ns);
  row.hidden_us = to_us(times.hidden_ns);
  row.other_us = row.step_us - row.compute_us - row.exposed_us;
  if (times.wait_ns) {
    row.wait_us = to_us(*times.wait_ns);
    row.wire_us = row.exposed_us - *row.wait_us;
  }
  return row;
}

// What the late rank did, longest part first.
BillWaitedFor waited_row(const WaitedFor& waited, Rank late) {
  BillWaitedFor row;
  row.rank = late;
  row.us = to_us(waited.ns);
  const auto* longest = std::max_element(std::begin(waited.late_did_ns), std::end(waited.late_did_ns));
  std::int64_t all = 0;
  for (const std::int64_t ns : waited.late_did_ns) all += ns;
  const double share = all > 0 ? static_cast<double>(*longest) / static_cast<double>(all) : 0;
  const std::string part = percent_text(share) + " of the time";
  switch (static_cast<LateBecause>(longest - std::begin(waited.late_did_ns))) {
    case LateBecause::kCompute:
      row.cause = WaitCause::kCompute;
      row.cause_text = fmt::format("it computed {}, longest {}", part, waited.kernel.empty() ? "?" : waited.kernel);
      break;
    case LateBecause::kComm:
      row.cause = WaitCause::kLag;
      row.cause_text = fmt::format("it was in other communication {}", part);
      break;
    case LateBecause::kCopy:
      row.cause = WaitCause::kCopying;
      row.cause_text = fmt::format("it copied {}", part);
      break;
    case LateBecause::kIdle:
      row.cause = WaitCause::kOther;
      row.cause_text = fmt::format("its device was idle {}: the host was late", part);
      break;
  }
  row.by_cause_us[static_cast<std::size_t>(row.cause)] = row.us;
  return row;
}

class TraceBill {
 public:
  TraceBill(const std::vector<GpuTrace>& traces, const Analysis& analysis)
      : traces_(traces), analysis_(analysis), by_device_(ranks_repeat(analysis)) {
    bill_.trace.emplace();
  }

  Bill make() {
    add_ranks();
    add_means();
    for (const CommTotals& comm : analysis_.comm) add_comm(comm);
    for (const NameTotal& name : analysis_.unknown) {
      bill_.trace->unknown.push_back({name.name, name.kernels, to_us(name.ns)});
    }
    std::vector<double> steps;
    for (const TraceStep& step : analysis_.steps) steps.push_back(to_us(step.end_ns - step.start_ns));
    bill_.trace->steps_us = stats_of(std::move(steps));
    add_notes();
    return std::move(bill_);
  }

 private:
  Rank rank(std::size_t device) const { return rank_of(analysis_.devices[device], device, by_device_); }

  void add_ranks() {
    std::set<std::string> models;
    for (std::size_t i = 0; i < analysis_.devices.size(); ++i) {
      const DeviceTimes& times = analysis_.devices[i];
      bill_.ranks.push_back(rank_row(times, rank(i)));
      for (const WaitedFor& waited : analysis_.waits) {
        if (waited.waiter == i) bill_.ranks.back().waited_for.push_back(waited_row(waited, rank(waited.late)));
      }
      bill_.trace->devices.push_back({rank(i), times.device, to_us(times.copy_ns), to_us(times.idle_ns),
                                      to_us(times.sync_ns), to_us(times.idle_host_ns), to_us(times.clock_offset_ns)});
      const auto& named = traces_[times.trace].devices;
      models.insert(named.begin(), named.end());
    }
    bill_.trace->models.assign(models.begin(), models.end());
    bill_.config.ranks = static_cast<int>(analysis_.devices.size());
  }

  void add_means() {
    const auto n = static_cast<double>(std::max<std::size_t>(bill_.ranks.size(), 1));
    std::vector<double> windows;
    double wait = 0, wire = 0;
    for (const BillRank& row : bill_.ranks) {
      windows.push_back(row.step_us);
      bill_.compute_us += row.compute_us / n;
      bill_.comm_us += row.comm_us / n;
      bill_.exposed_us += row.exposed_us / n;
      bill_.hidden_us += row.hidden_us / n;
      bill_.other_us += row.other_us / n;
      wait += row.wait_us.value_or(0) / n;
      wire += row.wire_us.value_or(0) / n;
    }
    bill_.step_us = stats_of(std::move(windows));
    bill_.tax.us = bill_.exposed_us;
    bill_.tax.share = bill_.step_us.mean > 0 ? bill_.tax.us / bill_.step_us.mean : 0;
    if (analysis_.alignment && analysis_.alignment->collectives > 0) {
      bill_.tax.wait_us = wait;
      bill_.tax.wire_us = wire;
    }
  }

  void add_comm(const CommTotals& comm) {
    const auto n = static_cast<double>(std::max<std::size_t>(analysis_.devices.size(), 1));
    std::int64_t all = 0;
    for (const CommTotals& each : analysis_.comm) all += each.ns;
    BillTraceOperation row;
    row.family = comm.what.family;
    row.operation = comm.what.operation;
    row.phase = comm.what.phase;
    row.sync_only = comm.what.sync_only;
    row.kernels = comm.kernels;
    row.us = to_us(comm.ns) / n;
    row.exposed_us = to_us(comm.exposed_ns) / n;
    row.share = all > 0 ? static_cast<double>(comm.ns) / static_cast<double>(all) : 0;
    BillExchange exchange;
    exchange.name = comm.what.operation;
    exchange.phase = comm.what.phase;
    exchange.family = comm.what.family;
    exchange.calls = comm.calls > 0 ? comm.calls : comm.kernels;
    exchange.us = to_us(comm.ns) / static_cast<double>(std::max<std::int64_t>(comm.kernels, 1));
    exchange.logical_bytes = comm.bytes;
    exchange.bytes_known = comm.bytes > 0;
    exchange.physical_known = false;
    if (comm.calls > 0) {
      const double parts = static_cast<double>(comm.calls) * n;
      row.shortest_us = to_us(comm.shortest_ns);
      row.longest_us = to_us(comm.longest_ns);
      row.longest_rank = rank(comm.longest_device);
      exchange.wait_us = to_us(comm.wait_ns) / parts;
      exchange.transfer_us = to_us(comm.transfer_ns) / parts;
      exchange.last_rank = rank(comm.last_device);
      if (comm.bytes > 0 && comm.transfer_ns > 0) {
        exchange.gbs = static_cast<double>(comm.bytes) / static_cast<double>(comm.transfer_ns);
      }
    }
    bill_.trace->operations.push_back(std::move(row));
    bill_.exchanges.push_back(std::move(exchange));
  }

  void note(std::string text) { bill_.trace->notes.push_back(std::move(text)); }

  void add_notes() {
    if (analysis_.devices.empty()) {
      note(
          "No work on a device is in these traces: nothing to bill. They cover the host alone, or the profiler was not "
          "asked for the device's activities.");
      return;
    }
    if (analysis_.comm.empty()) note("No kernel communicates: the tax is zero.");
    if (!analysis_.alignment) {
      if (!analysis_.comm.empty()) {
        note("Waiting and transfer cannot be told apart with one rank: add the traces of its peers.");
      }
      return;
    }
    const ClockAlignment& alignment = *analysis_.alignment;
    bill_.trace->matched = alignment.collectives;
    bill_.trace->unmatched = alignment.unmatched;
    if (alignment.collectives == 0) {
      note("No collective could be matched across ranks, so waiting and transfer cannot be told apart.");
      return;
    }
    bill_.trace->residual_us = alignment.residual_us;
    if (alignment.unmatched > 0) {
      note(fmt::format("{} kernels of communication have no peers in these traces and count as transfer.",
                       alignment.unmatched));
    }
    if (!alignment.whole_groups) note("Some members of the groups are missing: waits are at least what is shown.");
    if (alignment.doubtful > 0) {
      note(fmt::format("Of {} matched collectives {} do not overlap in time; their waits are doubtful.",
                       alignment.collectives, alignment.doubtful));
    }
  }

  const std::vector<GpuTrace>& traces_;
  const Analysis& analysis_;
  bool by_device_;
  Bill bill_;
};

}  // namespace

Bill bill_of_traces(const std::vector<GpuTrace>& traces, const Analysis& analysis) {
  return TraceBill(traces, analysis).make();
}

}  // namespace moetax
