// Which GPUs should form expert-parallel groups: a packing of cliques, fastest links first.
#include <algorithm>
#include <cassert>
#include <numeric>
#include <utility>

#include "moetax/machine/topology_facts.h"

namespace moetax {
namespace {

constexpr int kMaxSteps = 50'000;  // of one search; machines of 16 GPUs need a few hundred

// The most disjoint groups of `size` among the GPUs of `free` such that no link in a group is slower than `limit`.
class Packing {
 public:
  Packing(const Topology& topology, std::vector<int> free, int size, const Link& limit)
      : topology_(topology),
        free_(std::move(free)),
        size_(static_cast<std::size_t>(size)),
        limit_(limit),
        used_(free_.size(), false) {}

  std::vector<std::vector<int>> best() {
    search(0);
    return best_;
  }

 private:
  std::size_t wanted() const { return free_.size() / size_; }
  bool done() const { return best_.size() == wanted() || steps_ > kMaxSteps; }

  // Groups with the first unused GPU at or after `from`, then groupings without it.
  void search(std::size_t from) {
    if (groups_.size() > best_.size()) best_ = groups_;
    while (from < free_.size() && used_[from]) ++from;
    const auto unused =
        static_cast<std::size_t>(std::count(used_.begin() + static_cast<std::ptrdiff_t>(from), used_.end(), false));
    if (done() || groups_.size() + unused / size_ <= best_.size()) return;
    used_[from] = true;
    std::vector<int> group{free_[from]};
    grow(group, from);
    search(from + 1);
    used_[from] = false;
  }

  // Completes `group`, whose last member is free_[last], in every way that keeps to the limit.
  void grow(std::vector<int>& group, std::size_t last) {
    if (++steps_ > kMaxSteps) return;
    if (group.size() == size_) {
      groups_.push_back(group);
      search(0);
      groups_.pop_back();
      return;
    }
    for (std::size_t i = last + 1; i < free_.size() && !done(); ++i) {
      if (used_[i] || !fits(group, free_[i])) continue;
      used_[i] = true;
      group.push_back(free_[i]);
      grow(group, i);
      group.pop_back();
      used_[i] = false;
    }
  }

  bool fits(const std::vector<int>& group, int gpu) const {
    return std::none_of(group.begin(), group.end(),
                        [&](int member) { return slower(topology_.link(member, gpu), limit_); });
  }

  const Topology& topology_;
  std::vector<int> free_;
  std::size_t size_;
  Link limit_;
  std::vector<bool> used_;
  std::vector<std::vector<int>> groups_, best_;
  int steps_ = 0;
};

// The different links between GPUs, fastest first, unknown last if there is any.
std::vector<Link> grades(const Topology& topology) {
  std::vector<Link> all;
  for (int a = 0; a < topology.gpus(); ++a) {
    for (int b = a + 1; b < topology.gpus(); ++b) {
      const Link& link = topology.link(a, b);
      if (std::find(all.begin(), all.end(), link) == all.end()) all.push_back(link);
    }
  }
  std::sort(all.begin(), all.end(), [](const Link& a, const Link& b) { return slower(b, a); });
  return all;
}

// In the order in which groups are tried: island by island.
std::vector<int> by_island(const Topology& topology) {
  std::vector<int> gpus;
  for (const Island& island : islands(topology)) gpus.insert(gpus.end(), island.gpus.begin(), island.gpus.end());
  return gpus;
}

}  // namespace

Link slowest_link(const Topology& topology, std::span<const int> gpus) {
  if (gpus.size() < 2) return {};
  Link worst = topology.link(gpus[0], gpus[1]);
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    for (std::size_t j = i + 1; j < gpus.size(); ++j) {
      if (slower(topology.link(gpus[i], gpus[j]), worst)) worst = topology.link(gpus[i], gpus[j]);
    }
  }
  return worst;
}

std::vector<int> ep_sizes(const Topology& topology) {
  std::vector<int> sizes;
  for (int n = 2; n <= topology.gpus(); ++n) {
    if ((n & (n - 1)) == 0 || topology.gpus() % n == 0) sizes.push_back(n);
  }
  return sizes;
}

EpGrouping best_ep_groups(const Topology& topology, int size) {
  assert(size >= 2 && size <= topology.gpus());
  EpGrouping grouping{size, {}, by_island(topology)};
  for (const Link& limit : grades(topology)) {
    for (std::vector<int>& group : Packing(topology, grouping.left_over, size, limit).best()) {
      std::erase_if(grouping.left_over,
                    [&](int gpu) { return std::find(group.begin(), group.end(), gpu) != group.end(); });
      std::sort(group.begin(), group.end());
      const Link slowest = slowest_link(topology, group);
      grouping.groups.push_back({std::move(group), slowest});
    }
  }
  std::sort(grouping.left_over.begin(), grouping.left_over.end());
  return grouping;
}

EpGrouping consecutive_ep_groups(const Topology& topology, int size) {
  assert(size >= 2 && size <= topology.gpus());
  EpGrouping grouping{size, {}, std::vector<int>(static_cast<std::size_t>(topology.gpus()))};
  std::iota(grouping.left_over.begin(), grouping.left_over.end(), 0);
  while (grouping.left_over.size() >= static_cast<std::size_t>(size)) {
    const auto end = grouping.left_over.begin() + size;
    std::vector<int> group(grouping.left_over.begin(), end);
    const Link slowest = slowest_link(topology, group);
    grouping.groups.push_back({std::move(group), slowest});
    grouping.left_over.erase(grouping.left_over.begin(), end);
  }
  return grouping;
}

Link slowest_link(const EpGrouping& grouping) {
  if (grouping.groups.empty()) return {};
  return std::max_element(grouping.groups.begin(), grouping.groups.end(),
                          [](const EpGroup& a, const EpGroup& b) { return slower(b.slowest, a.slowest); })
      ->slowest;
}

bool stays_fastest(const Topology& topology, const EpGroup& group) {
  const LinkKind fastest = topology.fastest().kind;
  return fastest != LinkKind::kUnknown && group.slowest.kind == fastest;
}

std::vector<Island> islands(const Topology& topology) {
  const LinkKind fastest = topology.fastest().kind;
  std::vector<Island> found;
  std::vector<bool> seen(static_cast<std::size_t>(topology.gpus()), false);
  for (int first = 0; first < topology.gpus(); ++first) {
    if (seen[static_cast<std::size_t>(first)]) continue;
    seen[static_cast<std::size_t>(first)] = true;
    Island island{{first}, {}};
    for (std::size_t i = 0; i < island.gpus.size() && fastest != LinkKind::kUnknown; ++i) {
      for (int gpu = 0; gpu < topology.gpus(); ++gpu) {
        if (seen[static_cast<std::size_t>(gpu)] || topology.link(island.gpus[i], gpu).kind != fastest) continue;
        seen[static_cast<std::size_t>(gpu)] = true;
        island.gpus.push_back(gpu);
      }
    }
    std::sort(island.gpus.begin(), island.gpus.end());
    island.slowest = slowest_link(topology, island.gpus);
    for (std::size_t i = 0; i < island.gpus.size(); ++i) {
      for (std::size_t j = i + 1; j < island.gpus.size(); ++j) {
        const Link& link = topology.link(island.gpus[i], island.gpus[j]);
        island.direct = island.direct && link.kind == fastest && link.hops <= 1;
        island.equal = island.equal && link == island.slowest;
      }
    }
    island.equal = island.equal && island.direct;
    found.push_back(std::move(island));
  }
  return found;
}

}  // namespace moetax
