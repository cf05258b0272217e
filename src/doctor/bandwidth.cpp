#include "doctor/bandwidth.h"

#include <algorithm>
#include <cmath>

namespace moetax::doctor {
namespace {

Collective collective_of(const BandwidthFacts& entry, int ranks) {
  const std::string& name = entry.table.collective;
  for (const std::string_view text : {std::string_view(name), std::string_view(entry.file)}) {
    if (contains(text, "alltoall") || contains(text, "all_to_all")) return Collective::kAllToAll;
    if (contains(text, "allreduce") || contains(text, "all_reduce")) return Collective::kAllReduce;
  }
  const double factor = entry.table.bus_factor();
  const double share = static_cast<double>(ranks - 1) / ranks;
  return std::abs(factor - 2 * share) < 0.02 * share ? Collective::kAllReduce : Collective::kOther;
}

}  // namespace

std::optional<BandwidthRun> run_of(const BandwidthFacts& entry) {
  const NcclTestsTable& table = entry.table;
  const int hosts = static_cast<int>(table.hosts.size());
  if (table.ranks < 2 || hosts < 1 || table.ranks % hosts != 0) return std::nullopt;
  BandwidthRun run{collective_of(entry, table.ranks), table.ranks, hosts, table.ranks / hosts, 0, 0};
  for (const NcclTestsRow& row : table.rows) {
    const double best = std::max(row.out_of_place.busbw_gbs, row.in_place.busbw_gbs);
    if (best <= run.busbw) continue;
    run.busbw = best;
    run.line = row.line;
  }
  if (run.busbw <= 0) return std::nullopt;
  return run;
}

}  // namespace moetax::doctor
