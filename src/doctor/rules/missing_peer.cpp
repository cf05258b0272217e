#include <fmt/format.h>

#include <map>

#include "doctor/rules/rules.h"

namespace moetax::doctor {
namespace {

void check(const Facts& facts, const Rule& rule, Findings& out) {
  std::map<int, std::vector<const LogEvent*>> by_peer;
  for (const LogEvent* event : facts.log->of(LogKind::kPeerTimeout)) {
    if (event->rank && event->peer) by_peer[*event->peer].push_back(event);
  }
  const std::pair<const int, std::vector<const LogEvent*>>* most = nullptr;
  for (const auto& entry : by_peer) {
    if (!most || entry.second.size() > most->second.size()) most = &entry;
  }
  if (!most) return;
  Finding& f = out.add(rule, fmt::format("{} rank(s) wait for peer {}", most->second.size(), most->first));
  f.cause =
      "it did not enter this exchange: it is late, ended, or its group is made of other ranks (context parallelism "
      "folded otherwise).";
  for (const LogEvent* event : most->second) f.evidence.push_back(event->at);
  f.cost.text = "the run has stopped";
  f.fix = fmt::format("py-spy dump --pid PID_OF_RANK_{}   # where is it; and print the members of its EP group",
                      most->first);
  f.confidence = Confidence::kLikely;
}

}  // namespace

const Rule kMissingPeer = {
    .id = "missing-peer",
    .severity = Severity::kError,
    .title = "all ranks wait for the same peer",
    .explanation =
        "DeepEP's kernels print who waits for whom when their time is over: rank is the waiting one, thread "
        "the peer it has not heard from. Peers that most ranks wait for are late, dead, or not in the same "
        "exchange.",
    .source = "public report DeepEP 570",
    .check = check,
};

}  // namespace moetax::doctor
