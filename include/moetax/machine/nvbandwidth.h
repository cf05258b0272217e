// What NVIDIA's nvbandwidth prints: copies between host and GPUs, and between GPUs, in GB/s.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "moetax/base/result.h"

namespace moetax {

struct NvbandwidthTest {
  std::string name = {};  // "host_to_device_memcpy_ce"
  int line = 0;           // where its matrix begins
  struct Cell {
    int row = 0, column = 0;  // devices, or 0 for the host
    double gbs = 0;
  };
  std::vector<Cell> cells = {};  // those with a number
  double sum_gbs = 0;            // as printed; 0 where it is not
};

struct Nvbandwidth {
  std::string version = {};
  std::vector<std::string> devices = {};  // their models
  std::vector<NvbandwidthTest> tests = {};
  int skipped = 0;  // rows that are no row of their matrix, tests without a matrix

  // Between host and one GPU, the slowest of the GPUs, of a test of that name or beginning; 0: not measured.
  double slowest(std::string_view name) const;
};

// kBadInput in one line that starts with `origin`: no such output in it.
Result<Nvbandwidth> parse_nvbandwidth(std::string_view text, const std::string& origin);

// Whether `text`, a file or its beginning, is such output.
bool looks_like_nvbandwidth(std::string_view text);

}  // namespace moetax
