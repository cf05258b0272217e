#include "moetax/machine/host.h"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>
#include <sstream>

#include "machine/cgroup.h"
#include "machine/isa.h"
#include "machine/placement.h"

namespace moetax {
namespace {

// The value of the line "key : value" or "key: value", empty when there is none.
std::string find_line(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(key)) continue;
    const std::size_t colon = line.find(':');
    const std::size_t value = colon == std::string::npos ? colon : line.find_first_not_of(" \t", colon + 1);
    if (value != std::string::npos) return line.substr(value);
  }
  return {};
}

std::string cpu_name(const Topology& topology, const utsname& system) {
  for (hwloc_obj_t object = topology.cores().empty() ? nullptr : topology.cores().front().object; object;
       object = object->parent) {
    const char* model = hwloc_obj_get_info_by_name(object, "CPUModel");
    if (model && *model) return model;
  }
  const std::string model = find_line(read_small_file("/proc/cpuinfo"), "model name");
  return model.empty() ? system.machine : model;
}

std::size_t cache_bytes(const Topology& topology, hwloc_obj_type_t type) {
  if (topology.cores().empty()) return 0;
  hwloc_obj_t object = topology.cores().front().object;
  while (object && object->type != type) object = object->parent;
  return object ? static_cast<std::size_t>(object->attr->cache.size) : 0;
}

int usable_cores(const Topology& topology, double quota) {
  const int cores = std::max(1, static_cast<int>(topology.cores().size()));
  return quota < cores ? std::max(1, static_cast<int>(quota)) : cores;
}

std::size_t meminfo_bytes(const std::string& meminfo, const std::string& key) {
  std::size_t kib = 0;
  std::istringstream(find_line(meminfo, key)) >> kib;
  return kib * 1024;
}

// The bracketed word of "always [madvise] never".
std::string chosen_word(const std::string& path) {
  const std::string text = read_small_file(path);
  const std::size_t open = text.find('['), close = text.find(']');
  return open < close && close != std::string::npos ? text.substr(open + 1, close - open - 1) : "unknown";
}

std::string huge_page_state(const std::string& meminfo) {
  const std::string thp = "/sys/kernel/mm/transparent_hugepage/";
  std::size_t free_pages = 0;
  std::istringstream(find_line(meminfo, "HugePages_Free")) >> free_pages;
  return fmt::format("private: THP {}; shared: shmem THP {}, {} hugetlbfs pages of {} KiB free",
                     chosen_word(thp + "enabled"), chosen_word(thp + "shmem_enabled"), free_pages,
                     meminfo_bytes(meminfo, "Hugepagesize") / 1024);
}

}  // namespace

HostInfo probe_host() {
  const Topology& topology = Topology::of_this_machine();
  const CgroupLimits limits = read_cgroup_limits();
  const std::string meminfo = read_small_file("/proc/meminfo");
  const Isa isa = detect_isa();
  utsname system{};
  uname(&system);

  HostInfo host;
  host.cpu = cpu_name(topology, system);
  host.isa = isa.name;
  host.bf16 = isa.bf16;
  host.cores = usable_cores(topology, limits.cpus);
  host.numa_nodes = std::max(1, static_cast<int>(topology.nodes().size()));
  host.l2_bytes = cache_bytes(topology, HWLOC_OBJ_L2CACHE);
  host.l3_bytes = cache_bytes(topology, HWLOC_OBJ_L3CACHE);
  host.memory_bytes = std::min(meminfo_bytes(meminfo, "MemTotal"), limits.memory_bytes);
  host.available_bytes = std::min(meminfo_bytes(meminfo, "MemAvailable"), limits.available_bytes);
  host.kernel = fmt::format("{} {}", system.sysname, system.release);
  host.huge_pages = huge_page_state(meminfo);
  return host;
}

}  // namespace moetax
