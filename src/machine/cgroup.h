// What the control groups around this process leave it. Containers limit memory and CPU time this way, and nothing in
// /proc/meminfo or the affinity mask shows it.
#pragma once

#include <cstddef>
#include <limits>
#include <string>

namespace moetax {

struct CgroupLimits {
  double cpus = std::numeric_limits<double>::infinity();  // CPU time per wall time
  std::size_t memory_bytes = std::numeric_limits<std::size_t>::max();
  std::size_t available_bytes = std::numeric_limits<std::size_t>::max();  // limit - use, file cache not counted as use
};

// The tightest of the limits of this process's groups and all groups above them, version 1 and 2. Files that are
// missing or unreadable limit nothing. `root` goes before every path that is read (tests put a made-up tree there).
CgroupLimits read_cgroup_limits(const std::string& root = "");

// The whole content of a small file, empty when it cannot be read. For /proc and /sys.
std::string read_small_file(const std::string& path);

}  // namespace moetax
