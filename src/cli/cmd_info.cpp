// moetax info: what this machine and this build can do, and why not.
#include <fmt/format.h>

#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "build_info.h"
#include "cli/cli.h"
#include "cli/registry.h"
#include "moetax/expert/feed_forward.h"
#include "moetax/machine/host.h"
#include "moetax/model/shape.h"
#include "moetax/route/router.h"
#include "moetax/version.h"

namespace moetax::cli {
namespace {

void line(const char* what, const std::string& text) {
  std::fputs(fmt::format("{:<14}{}\n", what, text).c_str(), stdout);
}

std::string bytes(std::size_t count) {
  if (count == 0) return "unknown";
  const double mib = static_cast<double>(count) / (1 << 20);
  return mib >= 1024 ? fmt::format("{:.1f} GiB", mib / 1024) : fmt::format("{:.1f} MiB", mib);
}

// Highway's name for a set of instructions, as people call it.
std::string isa_text(std::string_view highway) {
  if (highway.starts_with("AVX3")) return "AVX-512";
  if (highway == "SSE4") return "SSE4.2";
  return std::string(highway);
}

template <class Entry>
void table(const char* what, std::span<const Entry> entries) {
  for (const Entry& entry : entries) {
    const Result<std::string> found = entry.probe();
    const std::string detail = found && !found->empty() ? ": " + *found : "";
    line(what, found ? fmt::format("{}: {}{}", entry.name, entry.what, detail)
                     : fmt::format("{}: not available: {}", entry.name, found.error().message));
    what = "";
  }
}

}  // namespace

int cmd_info(int argc, char** argv) {
  if (argc > 1) {
    const bool help = std::strcmp(argv[1], "--help") == 0 || std::strcmp(argv[1], "-h") == 0;
    std::fputs("usage: moetax info\nWhat this machine and this build can do, and why not.\n", help ? stdout : stderr);
    return help ? 0 : exit_code(ErrorCode::kUsage);
  }
  const HostInfo host = probe_host();
  line("moetax", fmt::format("{} ({}, {})", MOETAX_VERSION_STRING, kBuildCompiler, kBuildType));
  line("processor", fmt::format("{}, {}", host.cpu, host.isa));
  line("cores", fmt::format("{} usable, {} NUMA node{}", host.cores, host.numa_nodes, host.numa_nodes == 1 ? "" : "s"));
  line("caches", fmt::format("L2 {} per core, L3 {}", bytes(host.l2_bytes), bytes(host.l3_bytes)));
  line("memory", fmt::format("{}, {} available", bytes(host.memory_bytes), bytes(host.available_bytes)));
  line("pages", host.huge_pages);
  line("kernel", host.kernel);
  line("products", gemm_description());
  line("kernels", fmt::format("for {}, picked at run time", isa_text(route_isa())));
  table("transports", transports());
  table("exchanges", exchanges());
  line("presets", fmt::format("{}", fmt::join(preset_names(), ", ")));
  return 0;
}

}  // namespace moetax::cli
