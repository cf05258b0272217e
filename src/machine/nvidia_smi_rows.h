// Laying a row of `nvidia-smi topo -m` over the columns of its matrix.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "machine/nvidia_smi_words.h"
#include "moetax/machine/topology.h"

namespace moetax {

struct MatrixHeader {
  struct Affinity {
    std::string_view name;  // "CPU", "NUMA" or "GPU": the first word of a column's name; of static life time
    std::size_t at = 0;
  };
  int line = 0;                    // 0: no header
  std::vector<Device> devices;     // in the order of columns
  std::vector<std::size_t> at;     // where each column begins
  std::vector<Affinity> affinity;  // the columns behind the devices
  bool tabs = false;               // exactly one tab before each column
};
// The header in `line`, if it is one: devices' names, GPUs first, at least one followed by affinity columns or two.
std::optional<MatrixHeader> matrix_header(std::string_view line, int number);

struct MatrixRow {
  int device = -1;                               // column of the device the row is about
  std::vector<std::optional<MatrixCell>> cells;  // one per column; none where blank, cut off or not to be trusted
  std::string cpus;
  int numa_node = -1;
  std::string trouble;  // what of the row could not be used, and why; empty when all was
};
// The row in `line`, if it begins with the name of one of the header's devices.
std::optional<MatrixRow> matrix_row(const MatrixHeader& header, std::string_view line);

}  // namespace moetax
