// Reading a small text file whole.
#pragma once

#include <cstddef>
#include <string>

#include "moetax/base/result.h"

namespace moetax {

// The bytes of `path`. kBadInput naming it: it cannot be opened or read (and why), is a directory, holds more than
// `max_bytes`, or is gzip-compressed (by its first bytes; the message says how to unpack it).
Result<std::string> read_text_file(const std::string& path, std::size_t max_bytes);

// A file of any size: whole up to `max_bytes`, otherwise its first and its last half of that, cut at line ends where
// there are any near. A pipe is read up to `max_bytes`. Errors as above, but for the size.
struct TextEnds {
  std::string text;
  std::size_t left_out_bytes = 0;  // between the two, or after the end of the first
};
Result<TextEnds> read_text_ends(const std::string& path, std::size_t max_bytes);

}  // namespace moetax
