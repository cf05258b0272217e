#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>

#include "analyze/across_ranks.h"

namespace moetax {
namespace {

struct Candidate {
  std::map<std::size_t, std::vector<std::size_t>> items;  // by device, in order
  bool noted = false;
  int group_size = -1;
};

// What a kernel's peers on other ranks have in common with it, but for their order.
std::string key_of(const DeviceWork& work, const WorkItem& item, Candidate& candidate) {
  const GpuTrace& trace = *work.trace;
  const std::string& function = work.functions[static_cast<std::size_t>(item.kind)];
  const std::int32_t at = trace.events[item.event].collective;
  if (at < 0) return function;
  const CollectiveNote& note = trace.collectives[static_cast<std::size_t>(at)];
  if (note.group == 0 && note.ranks == 0) return function;
  candidate.noted = true;
  candidate.group_size = note.group_size;
  const std::string_view operation = note.operation ? trace.names[note.operation] : std::string_view(function);
  std::string key = fmt::format("{}\n{}\n{}", operation, trace.names[note.group], trace.names[note.ranks]);
  if (note.sequence >= 0) key += fmt::format("\n{}", note.sequence);
  return key;
}

std::int64_t end_of(const std::vector<DeviceWork>& works, const Member& member) {
  return works[member.device].items[member.item].end;
}

std::int64_t median(std::vector<std::int64_t>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

std::vector<Matched> match_collectives(const std::vector<DeviceWork>& works, std::int64_t& unmatched) {
  std::map<std::string, Candidate> candidates;
  for (std::size_t d = 0; d < works.size(); ++d) {
    for (std::size_t i = 0; i < works[d].items.size(); ++i) {
      if (!works[d].communicates(works[d].items[i])) continue;
      Candidate what;
      Candidate& candidate = candidates[key_of(works[d], works[d].items[i], what)];
      candidate.noted = what.noted;
      candidate.group_size = what.group_size;
      candidate.items[d].push_back(i);
    }
  }
  std::vector<Matched> matched;
  unmatched = 0;
  for (const auto& [key, candidate] : candidates) {
    std::size_t fewest = SIZE_MAX, most = 0, all = 0;
    for (const auto& [device, items] : candidate.items) {
      fewest = std::min(fewest, items.size());
      most = std::max(most, items.size());
      all += items.size();
    }
    const bool everybody = candidate.noted || candidate.items.size() == works.size();
    if (candidate.items.size() < 2 || fewest != most || !everybody) {
      unmatched += static_cast<std::int64_t>(all);
      continue;
    }
    for (std::size_t i = 0; i < fewest; ++i) {
      Matched one;
      one.group_size = candidate.group_size;
      for (const auto& [device, items] : candidate.items) one.members.push_back({device, items[i]});
      matched.push_back(std::move(one));
    }
  }
  return matched;
}

std::vector<std::int64_t> align_clocks(const std::vector<DeviceWork>& works, const std::vector<Matched>& matched) {
  std::vector<std::int64_t> offset(works.size(), 0);
  std::vector<bool> aligned(works.size(), false);
  if (!aligned.empty()) aligned[0] = true;
  for (bool progress = true; progress;) {
    progress = false;
    // By how much each device's ends lie before those of the aligned ones.
    std::vector<std::vector<std::int64_t>> behind(works.size());
    for (const Matched& one : matched) {
      std::vector<std::int64_t> known;
      for (const Member& m : one.members) {
        if (aligned[m.device]) known.push_back(end_of(works, m) + offset[m.device]);
      }
      if (known.empty()) continue;
      const std::int64_t end = median(known);
      for (const Member& m : one.members) {
        if (!aligned[m.device]) behind[m.device].push_back(end - end_of(works, m));
      }
    }
    for (std::size_t d = 0; d < works.size(); ++d) {
      if (behind[d].empty()) continue;
      offset[d] = median(behind[d]);
      aligned[d] = progress = true;
    }
  }
  return offset;
}

}  // namespace moetax
