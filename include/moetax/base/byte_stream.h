// Bytes of a file as they come, unpacked on the way.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "moetax/base/result.h"

namespace moetax {

class ByteStream {
 public:
  virtual ~ByteStream() = default;
  // Fills up to `size` bytes; fewer only at the end, 0 after it. Trouble in the middle of a file ends it: trouble()
  // says why.
  virtual std::size_t read(char* to, std::size_t size) = 0;
  const std::string& trouble() const { return trouble_; }

 protected:
  std::string trouble_;
};

// Packed files are known by their first bytes. kBadInput naming the path: it cannot be opened or is a directory.
Result<std::unique_ptr<ByteStream>> open_bytes(const std::string& path);
// Of bytes in memory, which must outlive it.
std::unique_ptr<ByteStream> bytes_of(std::string_view text);

}  // namespace moetax
