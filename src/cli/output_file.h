// Files that a verb will write at its end.
#pragma once

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "moetax/base/result.h"

namespace moetax::cli {

// Before hours of steps, not after them. Leaves an empty file where there was none.
inline Result<void> check_writable(const std::string& path) {
  if (path.empty() || path == "-") return {};
  std::FILE* file = std::fopen(path.c_str(), "a");
  if (!file) return fail(ErrorCode::kUsage, fmt::format("cannot write {}: {}", path, std::strerror(errno)));
  std::fclose(file);
  return {};
}

}  // namespace moetax::cli
