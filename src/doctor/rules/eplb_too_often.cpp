#include <fmt/format.h>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const Settings& s = facts.job.settings;
  const Settings::Names kInterval = {"eplb_rebalance_num_iterations", "eplb_step_interval", "step_interval",
                                     "eplb_config.step_interval"};
  const auto interval = s.whole(kInterval);
  const LogEvent* longest = nullptr;
  for (const LogEvent* event : facts.log->of(LogKind::kRebalance)) {
    if (!event->numbers.empty() && (!longest || event->numbers[0] > longest->numbers[0])) longest = event;
  }
  if (!interval || *interval < 1 || !longest) return;
  const auto step_ms = s.number({"step_ms", "tpot_ms", "expected_step_ms"});
  const double step_s = step_ms && *step_ms > 0 ? *step_ms * 1e-3 : 0.05;  // a decode step is hardly longer
  const double share = longest->numbers[0] / (static_cast<double>(*interval) * step_s + longest->numbers[0]);
  if (share < 0.03) return;
  Finding& f = out.add(rule, fmt::format("a rebalance of {:.2f} s every {} steps", longest->numbers[0], *interval));
  f.cause = fmt::format("{} steps of {:.0f} ms take {:.1f} s.", *interval, step_s * 1e3,
                        static_cast<double>(*interval) * step_s);
  f.evidence = {s.where(kInterval), longest->at};
  f.cost.share = share;
  f.cost.text = fmt::format("{:.0f} % of the time at steps of {:.0f} ms{}", 100 * share, step_s * 1e3,
                            step_ms ? "" : " (assumed)");
  f.fix =
      fmt::format("an interval of {} steps, for 1 %", static_cast<long long>(longest->numbers[0] / (0.01 * step_s)));
  f.confidence = step_ms ? Confidence::kLikely : Confidence::kPossible;
}

}  // namespace

const Rule kEplbTooOften = {
    .id = "eplb-too-often",
    .severity = Severity::kWarning,
    .title = "rebalancing that eats its own gain",
    .explanation =
        "Moving experts copies weights and stops the engine: 0.3 to 2 s each time in reports. At a rebalance "
        "every N steps that is its time over N steps' time. A longer interval, or none while ranks are even, "
        "keeps the gain.",
    .source = "public reports vLLM 28369, sglang 6739, 8345",
    .check = check,
};

}  // namespace moetax::doctor
