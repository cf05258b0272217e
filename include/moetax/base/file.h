// Reading a small text file whole.
#pragma once

#include <cstddef>
#include <string>

#include "moetax/base/result.h"

namespace moetax {

// The bytes of `path`. kBadInput naming it: it cannot be opened or read (and why), is a directory, holds more than
// `max_bytes`, or is gzip-compressed (by its first bytes; the message says how to unpack it).
Result<std::string> read_text_file(const std::string& path, std::size_t max_bytes);

}  // namespace moetax
