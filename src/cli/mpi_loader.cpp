#include <dlfcn.h>
#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <system_error>

#include "build_info.h"
#include "cli/mpi_plugin.h"

namespace moetax::cli {
namespace {

// Beside the command where it was built, in the library folder where it was installed.
Result<std::filesystem::path> find_plugin() {
  std::error_code failed;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", failed);
  if (failed) return fail(ErrorCode::kUnavailable, "cannot tell where this program lies: /proc/self/exe");
  const auto folder = program.parent_path();
  const auto installed = (folder / kPluginFolder).lexically_normal();
  for (const auto& path : {folder / kMpiPluginFile, installed / kMpiPluginFile}) {
    if (std::filesystem::exists(path, failed)) return path;
  }
  return fail(ErrorCode::kUnavailable, kBuildHasMpi ? fmt::format("{} is neither in {} nor in {}: install it again",
                                                                  kMpiPluginFile, folder.string(), installed.string())
                                                    : fmt::format("MPI was {}; build moetax again with it", kBuildMpi));
}

Result<const MpiPlugin*> load() {
  MOETAX_ASSIGN(const auto path, find_plugin());
  // Global, because MPI libraries load parts of themselves that expect to find them.
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!handle) return fail(ErrorCode::kUnavailable, fmt::format("cannot load its plug-in: {}", dlerror()));
  const auto entry = reinterpret_cast<MpiPluginEntry>(dlsym(handle, kMpiPluginEntry));
  const MpiPlugin* plugin = entry ? entry() : nullptr;
  if (plugin && plugin->abi == MpiPlugin::kAbi && std::strcmp(plugin->build, kBuildId) == 0) return plugin;
  return fail(ErrorCode::kUnavailable, fmt::format("{} belongs to another build of moetax ({}, this is {})",
                                                   path.string(), plugin ? plugin->build : "unknown", kBuildId));
}

}  // namespace

Result<const MpiPlugin*> mpi_plugin() {
  static const Result<const MpiPlugin*> loaded = load();
  return loaded;
}

}  // namespace moetax::cli
