#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "analyze/across_ranks.h"

namespace moetax {
namespace {

std::int64_t overlap(const Intervals& set, const Interval& with) {
  auto at = std::lower_bound(set.begin(), set.end(), with.begin,
                             [](const Interval& each, std::int64_t begin) { return each.end <= begin; });
  std::int64_t sum = 0;
  for (; at != set.end() && at->begin < with.end; ++at)
    sum += std::min(at->end, with.end) - std::max(at->begin, with.begin);
  return sum;
}

// A wait of one device: from its own arrival until the last one's, on its own clock.
struct Wait {
  Interval when;
  std::size_t late = 0;
};

class Waits {
 public:
  Waits(const std::vector<DeviceWork>& works, Analysis& analysis)
      : works_(works), analysis_(analysis), waits_(works.size()), transfers_(works.size()) {}

  void find() {
    ClockAlignment alignment;
    const auto matched = match_collectives(works_, alignment.unmatched);
    offset_ = align_clocks(works_, matched);
    for (const Matched& one : matched) take(one, alignment);
    alignment.collectives = static_cast<std::int64_t>(matched.size());
    if (!off_us_.empty()) {
      const auto middle = off_us_.begin() + static_cast<std::ptrdiff_t>(off_us_.size() / 2);
      std::nth_element(off_us_.begin(), middle, off_us_.end());
      alignment.residual_us = *middle;
    }
    analysis_.alignment = alignment;
    for (std::size_t d = 0; d < works_.size(); ++d) analysis_.devices[d].clock_offset_ns = offset_[d];
    if (matched.empty()) return;
    fill_totals();
    for (std::size_t d = 0; d < works_.size(); ++d) expose(d);
    for (auto& [pair, waited] : pairs_) analysis_.waits.push_back(std::move(waited));
    std::stable_sort(analysis_.waits.begin(), analysis_.waits.end(),
                     [](const WaitedFor& a, const WaitedFor& b) { return a.ns > b.ns; });
  }

 private:
  struct OperationTotals {
    std::int64_t calls = 0, wait = 0, transfer = 0, shortest = 0;
    std::map<std::size_t, std::int64_t> spent, last;  // by device
  };

  const WorkItem& item(const Member& m) const { return works_[m.device].items[m.item]; }
  std::int64_t begin(const Member& m) const { return item(m).begin + offset_[m.device]; }
  std::int64_t end(const Member& m) const { return item(m).end + offset_[m.device]; }

  void take(const Matched& one, ClockAlignment& alignment) {
    const auto last = std::max_element(one.members.begin(), one.members.end(),
                                       [&](const Member& a, const Member& b) { return begin(a) < begin(b); });
    std::vector<std::int64_t> ends;
    std::int64_t shortest = INT64_MAX;
    for (const Member& m : one.members) {
      ends.push_back(end(m));
      shortest = std::min(shortest, item(m).end - item(m).begin);
    }
    std::nth_element(ends.begin(), ends.begin() + static_cast<std::ptrdiff_t>(ends.size() / 2), ends.end());
    const std::int64_t common_end = ends[ends.size() / 2];
    const KernelClass& what = works_[last->device].what(item(*last));
    OperationTotals& totals = totals_[what.family + "\n" + what.operation];
    ++totals.calls;
    ++totals.last[last->device];
    totals.shortest += shortest;
    bool doubtful = false;
    for (const Member& m : one.members) {
      off_us_.push_back(std::fabs(static_cast<double>(end(m) - common_end)) * 1e-3);
      const std::int64_t length = item(m).end - item(m).begin;
      const std::int64_t wait = std::clamp<std::int64_t>(begin(*last) - begin(m), 0, length);
      doubtful |= begin(*last) > end(m);
      totals.wait += wait;
      totals.transfer += length - wait;
      totals.spent[m.device] += length;
      waits_[m.device].push_back({{item(m).begin, item(m).begin + wait}, last->device});
      transfers_[m.device].push_back({item(m).begin + wait, item(m).end});
    }
    alignment.doubtful += doubtful ? 1 : 0;
    if (one.group_size > static_cast<int>(one.members.size())) alignment.whole_groups = false;
  }

  void fill_totals() {
    const auto larger = [](const auto& a, const auto& b) { return a.second < b.second; };
    for (CommTotals& comm : analysis_.comm) {
      const auto at = totals_.find(comm.what.family + "\n" + comm.what.operation);
      if (at == totals_.end()) continue;
      const OperationTotals& totals = at->second;
      comm.calls = totals.calls;
      comm.wait_ns = totals.wait;
      comm.transfer_ns = totals.transfer;
      comm.shortest_ns = totals.shortest;
      const auto longest = std::max_element(totals.spent.begin(), totals.spent.end(), larger);
      comm.longest_device = longest->first;
      comm.longest_ns = longest->second;
      comm.last_device = std::max_element(totals.last.begin(), totals.last.end(), larger)->first;
    }
  }

  // Waiting counts where this device neither computes nor moves anything. Communication that has no peers here is
  // neither waiting nor transfer for certain; it stays with the transfer.
  void expose(std::size_t d) {
    std::vector<Interval> all;
    for (const Wait& wait : waits_[d]) all.push_back(wait.when);
    const Intervals exposed = without(without(united(std::move(all)), united(transfers_[d])), works_[d].compute);
    analysis_.devices[d].wait_ns = total(exposed);
    for (const Wait& wait : waits_[d]) {
      const std::int64_t ns = overlap(exposed, wait.when);
      if (ns <= 0) continue;
      const auto [at, is_new] = pairs_.try_emplace({d, wait.late});
      WaitedFor& waited = at->second;
      waited.waiter = d;
      waited.late = wait.late;
      waited.ns += ns;
      explain(wait, d, waited);
    }
  }

  void explain(const Wait& wait, std::size_t waiter, WaitedFor& waited) {
    const DeviceWork& late = works_[wait.late];
    const std::int64_t shift = offset_[waiter] - offset_[wait.late];
    const Interval when{wait.when.begin + shift, wait.when.end + shift};
    const std::int64_t compute = overlap(late.compute, when);
    const std::int64_t comm = overlap(without_cached(wait.late, KernelRole::kCommunication), when);
    const std::int64_t copy = overlap(without_cached(wait.late, KernelRole::kMemory), when);
    waited.late_did_ns[static_cast<std::size_t>(LateBecause::kCompute)] += compute;
    waited.late_did_ns[static_cast<std::size_t>(LateBecause::kComm)] += comm;
    waited.late_did_ns[static_cast<std::size_t>(LateBecause::kCopy)] += copy;
    waited.late_did_ns[static_cast<std::size_t>(LateBecause::kIdle)] += when.end - when.begin - compute - comm - copy;
    name_longest(late, when, waited);
  }

  // Of a device: communication beside compute, copies beside both.
  const Intervals& without_cached(std::size_t device, KernelRole role) {
    auto& sets = beside_[device];
    if (sets.empty()) {
      const DeviceWork& work = works_[device];
      sets.push_back(without(work.comm, work.compute));
      sets.push_back(without(without(work.copies, work.compute), work.comm));
    }
    return sets[role == KernelRole::kCommunication ? 0 : 1];
  }

  void name_longest(const DeviceWork& late, const Interval& when, WaitedFor& waited) {
    auto at = std::lower_bound(late.items.begin(), late.items.end(), when.begin,
                               [](const WorkItem& each, std::int64_t begin) { return each.begin < begin; });
    for (int back = 0; back < 8 && at != late.items.begin(); ++back) --at;  // what had begun before
    for (; at != late.items.end() && at->begin < when.end; ++at) {
      const std::int64_t ns = std::min(at->end, when.end) - std::max(at->begin, when.begin);
      std::int64_t& longest = longest_[{waited.waiter, waited.late}];
      if (ns <= longest || late.communicates(*at)) continue;
      longest = ns;
      waited.kernel = function_name(late.name(*at));
    }
  }

  const std::vector<DeviceWork>& works_;
  Analysis& analysis_;
  std::vector<std::int64_t> offset_;
  std::vector<std::vector<Wait>> waits_;
  std::vector<std::vector<Interval>> transfers_;
  std::vector<double> off_us_;
  std::map<std::string, OperationTotals> totals_;
  std::map<std::pair<std::size_t, std::size_t>, WaitedFor> pairs_;
  std::map<std::pair<std::size_t, std::size_t>, std::int64_t> longest_;
  std::map<std::size_t, std::vector<Intervals>> beside_;
};

}  // namespace

void find_waits(const std::vector<DeviceWork>& works, Analysis& analysis) {
  Waits(works, analysis).find();
}

}  // namespace moetax
