#include <fmt/format.h>

#include <set>

#include "doctor/rules/rules.h"
#include "moetax/base/units.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const LogEvent *busiest = nullptr, *idle = nullptr;
  std::set<std::string> names;
  int quiet = 0;
  for (const LogEvent* event : facts.log->of(LogKind::kPortCounter)) {
    if (event->numbers.empty() || !names.insert(event->op).second) continue;
    if (!busiest || event->numbers[0] > busiest->numbers[0]) busiest = event;
  }
  if (!busiest || busiest->numbers[0] * 4 < 1e9) return;  // counted in four bytes
  names.clear();
  for (const LogEvent* event : facts.log->of(LogKind::kPortCounter)) {
    if (event->numbers.empty() || !names.insert(event->op).second) continue;
    if (event->numbers[0] > 1e-4 * busiest->numbers[0]) continue;
    ++quiet;
    if (!idle) idle = event;
  }
  if (!idle) return;
  Finding& f =
      out.add(rule, fmt::format("{} of {} ports carried nothing, the first is {}", quiet, names.size(), idle->op));
  f.cause = fmt::format("{} sent {} meanwhile.", busiest->op, units::bytes_text(4 * busiest->numbers[0]));
  f.evidence = {idle->at, busiest->at};
  f.cost.share = std::nullopt;
  f.cost.text = fmt::format("up to {:.0f} % of the adapters' bandwidth, if these ports are meant for the job",
                            100.0 * quiet / static_cast<double>(names.size()));
  f.fix =
      "NCCL_IB_HCA and NVSHMEM_HCA_LIST: do they name these ports? of a dual-plane adapter: as many queue pairs as "
      "both "
      "planes need (NCCL_IB_QPS_PER_CONNECTION)";
  f.confidence = Confidence::kPossible;
}

}  // namespace

const Rule kAdapterIdle = {
    .id = "adapter-idle",
    .severity = Severity::kWarning,
    .title = "an adapter or a plane of one that carries nothing",
    .explanation =
        "Counters of ports show where bytes went. Beside ports that carried gigabytes one with nothing is a rail or a "
        "plane that no queue pair uses: lists of adapters that leave it out, kernels that use the first half of the "
        "queue pairs of a dual-plane adapter, a mapping that sends every GPU to the first. Its share of the bandwidth "
        "is lost.",
    .source = "public reports DeepEP 650, 336",
    .check = check,
};

}  // namespace moetax::doctor
