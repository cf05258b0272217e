// Real files from public sources that lie beside a checkout on some machines and are not part of the project.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace moetax {

// The folder: the environment variable MOETAX_SHARED_DATA, else ../shared/data seen from the checkout. A test that
// needs it skips itself with has_shared_data() and this path as the reason.
inline std::string shared_data() {
  const char* folder = std::getenv("MOETAX_SHARED_DATA");
  return folder ? folder : MOETAX_SOURCE_DIR "/../shared/data";
}
inline bool has_shared_data() {
  return std::filesystem::is_directory(shared_data());
}

}  // namespace moetax

#define MOETAX_NEEDS_SHARED_DATA() \
  if (!moetax::has_shared_data()) GTEST_SKIP() << "no folder " << moetax::shared_data() << " (MOETAX_SHARED_DATA)"
