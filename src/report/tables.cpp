#include "moetax/report/tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "moetax/base/units.h"
#include "moetax/machine/flight_dump.h"
#include "moetax/machine/nccl_inspector.h"
#include "moetax/machine/nccl_tests.h"
#include "moetax/machine/nvbandwidth.h"
#include "moetax/route/load_file.h"
#include "moetax/trace/nsight_table.h"
#include "report/table.h"

namespace moetax {
namespace {

using report::Align;
using report::Table;

std::string share_text(double part, double all) {
  return units::percent_text(all > 0 ? part / all : 0);
}

// ---- kernels of Nsight Systems --------------------------------------------------------------------------------------

struct Kernels {
  double ns = 0;
  std::int64_t instances = 0;
  void add(const KernelTotal& kernel) {
    ns += kernel.ns;
    instances += kernel.instances;
  }
};

std::string text_of(const NsightTable& table, const KernelRules& rules) {
  Kernels all, compute, memory, comm;
  std::map<std::pair<std::string, std::string>, Kernels> by_operation;
  const KernelTotal* longest = nullptr;
  for (const KernelTotal& kernel : table.kernels) {
    const KernelClass what = rules.classify(kernel.name);
    all.add(kernel);
    if (what.role == KernelRole::kCommunication) {
      comm.add(kernel);
      by_operation[{what.family, what.operation}].add(kernel);
      if (!longest || kernel.ns > longest->ns) longest = &kernel;
    } else {
      (what.role == KernelRole::kMemory ? memory : compute).add(kernel);
    }
  }
  const auto time = [](double ns) { return units::time_text(ns * 1e-3); };
  std::string text =
      fmt::format("{} of kernel time, {} of it communication ({}), compute {}, copies {}.\n", time(all.ns),
                  time(comm.ns), share_text(comm.ns, all.ns), time(compute.ns), time(memory.ns));
  if (longest) text += fmt::format("Most of the communication is {}.\n", function_name(longest->name));
  Table rows({{"family", Align::kLeft}, {"operation", Align::kLeft}, {"kernels"}, {"time"}, {"share"}});
  std::vector<std::pair<std::pair<std::string, std::string>, Kernels>> sorted(by_operation.begin(), by_operation.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.ns > b.second.ns; });
  for (const auto& [name, kernels] : sorted) {
    rows.add(
        {name.first, name.second, fmt::to_string(kernels.instances), time(kernels.ns), share_text(kernels.ns, all.ns)});
  }
  if (!sorted.empty()) text += rows.text();
  text += "Exposed, hidden and waiting cannot be known from sums: give the trace itself (nsys export --type sqlite).\n";
  if (table.skipped > 0) text += fmt::format("{} rows could not be read.\n", table.skipped);
  return text;
}

// ---- NCCL's inspector -----------------------------------------------------------------------------------------------

struct Calls {
  std::int64_t count = 0, bytes = 0;
  double us = 0, busbw_least = 0, busbw_most = 0;
};

// Of calls that several ranks recorded: their time, and how much of it is beyond the shortest rank's.
std::pair<double, double> waiting_of(const InspectorDump& dump) {
  struct Met {
    int ranks = 0;
    double us = 0, shortest = 0;
  };
  std::map<std::tuple<std::string_view, std::string_view, std::int64_t>, Met> met;
  for (const InspectorCall& call : dump.calls) {
    if (call.sequence < 0 || call.us <= 0) continue;
    Met& one = met[{call.communicator, call.op, call.sequence}];
    one.shortest = one.ranks == 0 ? call.us : std::min(one.shortest, call.us);
    one.us += call.us;
    ++one.ranks;
  }
  std::pair<double, double> sums;
  for (const auto& [key, one] : met) {
    if (one.ranks < 2) continue;
    sums.first += one.us;
    sums.second += one.us - one.ranks * one.shortest;
  }
  return sums;
}

std::string text_of(const InspectorDump& dump) {
  std::map<std::tuple<std::string, std::string, int>, Calls> by_op;
  double us = 0;
  for (const InspectorCall& call : dump.calls) {
    Calls& calls = by_op[{call.communicator, call.op, call.ranks}];
    calls.busbw_least = calls.count == 0 ? call.busbw_gbs : std::min(calls.busbw_least, call.busbw_gbs);
    calls.busbw_most = std::max(calls.busbw_most, call.busbw_gbs);
    ++calls.count;
    calls.bytes += std::max<std::int64_t>(call.bytes, 0);
    calls.us += call.us;
    us += call.us;
  }
  std::string text = fmt::format("{} in {} calls of NCCL, summed over the ranks in this file.\n", units::time_text(us),
                                 dump.calls.size());
  Table rows({{"communicator", Align::kLeft},
              {"operation", Align::kLeft},
              {"ranks"},
              {"calls"},
              {"time"},
              {"bytes"},
              {"busbw GB/s"}});
  for (const auto& [key, calls] : by_op) {
    const auto& [communicator, op, ranks] = key;
    rows.add({communicator, op, ranks > 0 ? std::to_string(ranks) : "?", fmt::to_string(calls.count),
              units::time_text(calls.us), calls.bytes > 0 ? units::bytes_text(static_cast<double>(calls.bytes)) : "?",
              calls.busbw_most > 0 ? fmt::format("{:.3g} to {:.3g}", calls.busbw_least, calls.busbw_most) : "?"});
  }
  text += rows.text();
  if (const auto [in, waiting] = waiting_of(dump); in > 0) {
    text += fmt::format(
        "Of {} in calls that several ranks recorded, {} ({}) are beyond the shortest rank's: waiting, as "
        "far as ends coincide.\n",
        units::time_text(in), units::time_text(waiting), share_text(waiting, in));
  } else {
    text += "Waiting and transfer cannot be told apart with one rank's records.\n";
  }
  if (dump.skipped > 0) text += fmt::format("{} entries hold no call.\n", dump.skipped);
  return text;
}

// ---- PyTorch's flight recorder --------------------------------------------------------------------------------------

std::string text_of(const FlightDump& dump) {
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> by_op;  // ended, not ended
  const FlightCall* stuck = nullptr;
  for (const FlightCall& call : dump.calls) {
    const bool ended = call.state == FlightState::kCompleted;
    auto& [done, open] = by_op[call.op];
    (ended ? done : open) += 1;
    if (!ended && !stuck) stuck = &call;
  }
  std::string text = fmt::format("The last {} calls of rank {} in {} groups", dump.calls.size(),
                                 dump.rank < 0 ? "?" : std::to_string(dump.rank), dump.groups.size());
  text += stuck ? fmt::format("; the first that has not ended is {} {} of {}{}.\n", stuck->op, stuck->sequence,
                              dump.groups[static_cast<std::size_t>(stuck->group)].name,
                              stuck->where.empty() ? "" : ", called at " + stuck->where)
                : "; all have ended.\n";
  Table rows({{"operation", Align::kLeft}, {"ended"}, {"not ended"}});
  for (const auto& [op, counts] : by_op) {
    rows.add({op, fmt::to_string(counts.first), fmt::to_string(counts.second)});
  }
  text += rows.text();
  text += "moetax doctor over the dumps of all ranks says who is missing.\n";
  return text;
}

// ---- measurements of links ------------------------------------------------------------------------------------------

std::string text_of(const std::vector<NcclTestsTable>& tables) {
  std::string text;
  for (const NcclTestsTable& table : tables) {
    double best = 0;
    std::int64_t bytes = 0, wrong = 0;
    double least_us = 0;
    for (const NcclTestsRow& row : table.rows) {
      for (const NcclTestsTiming* timing : {&row.out_of_place, &row.in_place}) {
        wrong += std::max<std::int64_t>(timing->wrong, 0);
        if (timing->time_us > 0) least_us = least_us == 0 ? timing->time_us : std::min(least_us, timing->time_us);
        if (timing->busbw_gbs <= best) continue;
        best = timing->busbw_gbs;
        bytes = row.bytes;
      }
    }
    text += fmt::format(
        "{}{} on {} ranks{}: at most {:.4g} GB/s bus bandwidth (at {}), at least {} a call{}.\n",
        text.empty() ? "" : "  ", table.collective.empty() ? "A collective" : table.collective,
        table.ranks > 0 ? std::to_string(table.ranks) : "an unknown number of",
        table.hosts.empty() ? "" : fmt::format(" of {} host{}", table.hosts.size(), table.hosts.size() == 1 ? "" : "s"),
        best, units::bytes_text(static_cast<double>(bytes)), units::time_text(least_us),
        wrong > 0 ? fmt::format("; {} WRONG elements", wrong) : "");
  }
  return text;
}

std::string text_of(const Nvbandwidth& measured) {
  Table rows({{"test", Align::kLeft}, {"slowest GB/s"}, {"sum GB/s"}});
  for (const NvbandwidthTest& test : measured.tests) {
    const double slowest = measured.slowest(test.name);
    if (slowest > 0) rows.add({test.name, fmt::format("{:.4g}", slowest), fmt::format("{:.5g}", test.sum_gbs)});
  }
  const double down = measured.slowest("host_to_device_memcpy");
  std::string text =
      fmt::format("Copies on {} GPU{}", measured.devices.size(), measured.devices.size() == 1 ? "" : "s");
  text += down > 0 ? fmt::format(": a GPU gets {:.4g} GB/s from the host at least.\n", down) : ".\n";
  return text + rows.text();
}

// ---- expert loads ---------------------------------------------------------------------------------------------------

double max_over_mean(const std::vector<double>& rows) {
  const double sum = std::accumulate(rows.begin(), rows.end(), 0.0);
  return sum > 0 ? *std::max_element(rows.begin(), rows.end()) * static_cast<double>(rows.size()) / sum : 0;
}

// Experts in equal blocks.
std::vector<double> over_ranks(const std::vector<double>& experts, std::size_t ranks) {
  std::vector<double> rows(ranks, 0);
  for (std::size_t e = 0; e < experts.size(); ++e) rows[e * ranks / experts.size()] += experts[e];
  return rows;
}

std::string text_of(const std::vector<ExpertCounts>& loads) {
  const std::size_t experts = loads.front().counts.size();
  double rows = 0;
  for (const ExpertCounts& layer : loads) rows += std::accumulate(layer.counts.begin(), layer.counts.end(), 0.0);
  std::string text = fmt::format("Loads of {} experts in {} layer{}, {} rows.\n", experts, loads.size(),
                                 loads.size() == 1 ? "" : "s", units::count_text(rows));
  Table table({{"over", Align::kLeft}, {"max/mean, median layer"}, {"worst layer"}, {"which"}});
  for (const std::size_t ranks : {std::size_t{0}, std::size_t{2}, std::size_t{4}, std::size_t{8}, std::size_t{16}}) {
    if (ranks > 0 && (experts % ranks != 0 || ranks >= experts)) continue;
    std::vector<std::pair<double, int>> found;
    found.reserve(loads.size());
    for (const ExpertCounts& layer : loads) {
      found.emplace_back(max_over_mean(ranks > 0 ? over_ranks(layer.counts, ranks) : layer.counts), layer.layer);
    }
    std::sort(found.begin(), found.end());
    const double median = (found[found.size() / 2].first + found[(found.size() - 1) / 2].first) / 2;
    table.add({ranks > 0 ? fmt::format("{} ranks", ranks) : "experts", units::ratio_text(median),
               units::ratio_text(found.back().first), fmt::format("layer {}", found.back().second)});
  }
  return text + table.text() +
         "All ranks wait for the one with the most rows. moetax bench --routing counts:FILE replays a load.\n";
}

}  // namespace

Result<TableText> describe_table(std::string_view bytes, const std::string& origin, const KernelRules& rules) {
  if (looks_like_flight_dump(bytes)) {
    MOETAX_ASSIGN(const FlightDump dump, parse_flight_dump(bytes, origin));
    return TableText{"flight recorder dump", text_of(dump)};
  }
  if (looks_like_nccl_inspector(bytes)) {
    MOETAX_ASSIGN(const InspectorDump dump, parse_nccl_inspector(bytes, origin));
    return TableText{"NCCL inspector dump", text_of(dump)};
  }
  if (looks_like_nsight_table(bytes)) {
    MOETAX_ASSIGN(const NsightTable table, parse_nsight_table(bytes, origin));
    return TableText{"kernel table of Nsight Systems", text_of(table, rules)};
  }
  if (looks_like_nvbandwidth(bytes)) {
    MOETAX_ASSIGN(const Nvbandwidth measured, parse_nvbandwidth(bytes, origin));
    return TableText{"nvbandwidth output", text_of(measured)};
  }
  if (looks_like_nccl_tests(bytes)) {
    MOETAX_ASSIGN(const auto tables, parse_nccl_tests(bytes, origin));
    return TableText{"nccl-tests table", text_of(tables)};
  }
  if (const auto loads = count_expert_load(bytes); !loads.empty()) return TableText{"expert load", text_of(loads)};
  return fail(ErrorCode::kBadInput,
              fmt::format("{}: neither a trace nor a dump, table or expert load that is known", origin));
}

}  // namespace moetax
