// Reading text files: whole, their ends, or in pieces.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "moetax/base/function_ref.h"
#include "moetax/base/result.h"

namespace moetax {

// The bytes of `path`. kBadInput naming it: it cannot be opened or read (and why), is a directory, holds more than
// `max_bytes`, or is gzip-compressed (by its first bytes; the message says how to unpack it).
Result<std::string> read_text_file(const std::string& path, std::size_t max_bytes);

// A file of any size: whole up to `max_bytes`, otherwise its first and its last half of that, cut at line ends where
// there are any near. A pipe is read up to `max_bytes`. What is packed by gzip or zstd is unpacked on the way, at most
// 16 GiB of it. Errors as above, but for the size and gzip.
struct TextEnds {
  std::string text;
  std::size_t left_out_bytes = 0;  // between the two, or after the end of the first
  std::string trouble = {};        // why a packed file ends where it does; empty: nothing is wrong with it
};
Result<TextEnds> read_text_ends(const std::string& path, std::size_t max_bytes);

// Hands all bytes of `path` to `take`, in order and in pieces of at most 256 KiB, which are gone when it returns. The
// same errors, but for the size.
Result<void> read_text_pieces(const std::string& path, FunctionRef<void(std::string_view)> take);

}  // namespace moetax
