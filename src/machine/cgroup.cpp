#include "machine/cgroup.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string_view>
#include <vector>

namespace moetax {
namespace {

// One line of /proc/self/cgroup: the group of this process in one hierarchy; no controllers: version 2.
struct Group {
  std::string controllers;  // comma separated
  std::string path;
};

// One line of /proc/self/mountinfo that mounts a cgroup hierarchy.
struct Mount {
  bool version2 = false;
  std::string root;   // the group that shows at `point`
  std::string point;  // directory
  std::string options;
};

bool lists(const std::string& comma_separated, std::string_view word) {
  std::istringstream items(comma_separated);
  for (std::string item; std::getline(items, item, ',');) {
    if (item == word) return true;
  }
  return false;
}

std::vector<Group> read_groups(const std::string& root) {
  std::vector<Group> groups;
  std::istringstream lines(read_small_file(root + "/proc/self/cgroup"));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    groups.push_back({line.substr(first + 1, second - first - 1), line.substr(second + 1)});
  }
  return groups;
}

std::vector<Mount> read_mounts(const std::string& root) {
  std::vector<Mount> mounts;
  std::istringstream lines(read_small_file(root + "/proc/self/mountinfo"));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t dash = line.find(" - ");  // optional fields of any number end here
    if (dash == std::string::npos) continue;
    Mount mount;
    std::string skip, type;
    std::istringstream(line.substr(0, dash)) >> skip >> skip >> skip >> mount.root >> mount.point;
    std::istringstream(line.substr(dash + 3)) >> type >> skip >> mount.options;
    mount.version2 = type == "cgroup2";
    if (mount.version2 || type == "cgroup") mounts.push_back(mount);
  }
  return mounts;
}

std::optional<double> read_number(const std::string& path) {
  const std::string text = read_small_file(path);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return std::nullopt;  // among others the word "max": no limit
  return value;
}

// The number after `key` in memory.stat, 0 when there is none.
double read_stat(const std::string& path, std::string_view key) {
  std::istringstream words(read_small_file(path));
  std::string name;
  for (double value = 0; words >> name >> value;) {
    if (name == key) return value;
  }
  return 0;
}

void apply_cpu(const std::string& directory, bool version2, CgroupLimits& limits) {
  double quota = 0, period = 0;
  if (version2) {
    std::istringstream(read_small_file(directory + "/cpu.max")) >> quota >> period;
  } else {
    quota = read_number(directory + "/cpu.cfs_quota_us").value_or(0);
    period = read_number(directory + "/cpu.cfs_period_us").value_or(0);
  }
  if (quota > 0 && period > 0) limits.cpus = std::min(limits.cpus, quota / period);
}

void apply_memory(const std::string& directory, bool version2, CgroupLimits& limits) {
  const auto limit = read_number(directory + (version2 ? "/memory.max" : "/memory.limit_in_bytes"));
  const auto used = read_number(directory + (version2 ? "/memory.current" : "/memory.usage_in_bytes"));
  constexpr double kUnlimited = 0x1p62;  // version 1 writes the largest multiple of a page that fits 63 bits
  if (!limit || *limit >= kUnlimited || *limit < 0) return;
  // Inactive file cache counts as used but is given back on demand.
  const double cache = read_stat(directory + "/memory.stat", version2 ? "inactive_file" : "total_inactive_file");
  const double left = std::max(0.0, *limit - std::max(0.0, used.value_or(0) - cache));
  limits.memory_bytes = std::min(limits.memory_bytes, static_cast<std::size_t>(*limit));
  limits.available_bytes = std::min(limits.available_bytes, static_cast<std::size_t>(std::min(left, *limit)));
}

// Applies the limits of `group` and of every group above it that the mount shows.
void apply_hierarchy(const std::string& root, const Mount& mount, std::string group, bool cpu, bool memory,
                     CgroupLimits& limits) {
  if (mount.root != "/" && group.starts_with(mount.root)) group.erase(0, mount.root.size());
  for (;;) {
    while (group.ends_with('/')) group.pop_back();
    const std::string directory = fmt::format("{}{}{}", root, mount.point, group);
    if (cpu) apply_cpu(directory, mount.version2, limits);
    if (memory) apply_memory(directory, mount.version2, limits);
    if (group.empty()) return;
    group.erase(std::min(group.rfind('/'), group.size() - 1));
  }
}

}  // namespace

std::string read_small_file(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

CgroupLimits read_cgroup_limits(const std::string& root) {
  CgroupLimits limits;
  const std::vector<Group> groups = read_groups(root);
  for (const Mount& mount : read_mounts(root)) {
    const bool cpu = mount.version2 || lists(mount.options, "cpu");
    const bool memory = mount.version2 || lists(mount.options, "memory");
    for (const Group& group : groups) {
      const bool same =
          mount.version2 ? group.controllers.empty()
                         : (cpu && lists(group.controllers, "cpu")) || (memory && lists(group.controllers, "memory"));
      if (same) apply_hierarchy(root, mount, group.path, cpu, memory, limits);
    }
  }
  return limits;
}

}  // namespace moetax
