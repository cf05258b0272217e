// What every fuzzer shares: the entry point's declaration and a check that stays in release builds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "moetax/base/result.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace moetax::fuzz {

inline std::string_view as_text(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Stops the fuzzer at an input that breaks a promise of the interface.
inline void require(bool kept) {
  if (!kept) std::abort();
}

// Every error is one line that begins with the file's name.
inline void require_good_message(const Error& error, std::string_view origin) {
  require(error.message.starts_with(origin));
  require(error.message.size() < 1000);
  for (const char c : error.message) require(c >= ' ' && c <= '~');
}

}  // namespace moetax::fuzz
