#include <fmt/format.h>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  const JobFacts& job = facts.job;
  const Settings::Names kMap = {"device_map"};
  const auto map = job.settings.word(kMap);
  if (!map || (*map != "auto" && *map != "balanced") || !facts.model) return;
  const int ranks = job.world ? job.world->value : job.gpus_per_node ? job.gpus_per_node->value : 1;
  if (ranks < 2) return;
  Finding& f = out.add(rule, fmt::format("device_map {} in {} processes", *map, ranks));
  f.cause = "each process spreads its model over every GPU, so they take each other's memory.";
  f.evidence = {job.settings.where(kMap), job.world ? job.world->at : job.gpus_per_node->at};
  f.cost.text = fmt::format(
      "{} copies where one a GPU was meant; out of memory, or tokens that move between devices in each layer", ranks);
  f.fix = "device_map: {\"\": LOCAL_RANK}, or none   # the launcher places the model";
  f.confidence = Confidence::kLikely;
}

}  // namespace

const Rule kDeviceMapAuto = {
    .id = "device-map-auto",
    .severity = Severity::kError,
    .title = "an automatic device map in a job of several processes",
    .explanation =
        "device_map=\"auto\" spreads one copy of the model over all GPUs it sees. Started once a GPU, each "
        "process takes all of them; experts of one layer land on several devices or on the CPU, and every "
        "token moves there and back in every layer.",
    .source = "documentation of accelerate; mission of the doctor: misplaced modules",
    .check = check,
};

}  // namespace moetax::doctor
