#include "cli/routing_record.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "moetax/route/load_file.h"

namespace moetax::cli {
namespace {

namespace fs = std::filesystem;

// Where a link leads: renaming onto the link itself would replace it.
std::string resolved(const std::string& path) {
  constexpr int kMaxLinks = 40;
  fs::path target = path;
  std::error_code error;
  for (int i = 0; i < kMaxLinks && fs::is_symlink(target, error); ++i) {
    target = target.parent_path() / fs::read_symlink(target, error);  // an absolute one replaces the folder
  }
  return target.string();
}

std::string beside(const std::string& target) {
  return fmt::format("{}.{}.part", target, getpid());
}

}  // namespace

Result<void> check_recordable(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    return fail(ErrorCode::kUsage, fmt::format("--record-routing {}: it is no file, and a recording needs one", path));
  }
  const std::string part = beside(resolved(path));
  std::FILE* file = std::fopen(part.c_str(), "wb");
  if (!file) return fail(ErrorCode::kUsage, fmt::format("cannot write {}: {}", path, std::strerror(errno)));
  std::fclose(file);
  std::remove(part.c_str());
  return {};
}

Result<void> write_recording(const std::string& path, std::span<const RoutingTable> tables) {
  const std::string target = resolved(path);
  const std::string part = beside(target);
  std::remove(part.c_str());  // of a process that was killed
  Result<void> written;
  for (const RoutingTable& table : tables) {
    if (written) written = append_routing(part, table);
  }
  if (written && std::rename(part.c_str(), target.c_str()) != 0) {
    written = fail(ErrorCode::kBadInput, fmt::format("cannot write {}: {}", path, std::strerror(errno)));
  }
  if (!written) std::remove(part.c_str());
  return written;
}

}  // namespace moetax::cli
