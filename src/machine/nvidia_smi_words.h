// The words of the matrix that `nvidia-smi topo -m` prints.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "machine/words.h"
#include "moetax/machine/topology.h"

namespace moetax {

struct MatrixCell {
  bool self = false;  // "X", where a device meets itself
  Link link;
  std::size_t at = 0;
};
// One cell or several that have grown together ("NODENODE"); nothing when any of `word` is something else.
std::optional<std::vector<MatrixCell>> cells_of(const Word& word);

// "GPU3", "NIC12": the number, after exactly this prefix.
std::optional<int> numbered(std::string_view name, std::string_view prefix);

// One name of a device's column or several that have grown together ("NIC11NIC12"). Nothing when `word` cannot be a
// name: it has no digit, or is a cell.
std::vector<std::string> device_names(std::string_view word);

}  // namespace moetax
