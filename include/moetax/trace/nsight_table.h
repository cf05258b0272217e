// Tables of kernels that Nsight Systems' window exports or `nsys stats --format csv` prints: sums of each kernel
// (cuda_gpu_kern_sum), or a row a launch (cuda_gpu_trace), which are summed here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "moetax/base/result.h"

namespace moetax {

struct KernelTotal {
  std::string name;
  double ns = 0;               // of all its launches, of all devices that were profiled
  std::int64_t instances = 0;  // 0 where not said
  std::int64_t blocks = 0;     // of the launch with most, and its threads a block; 0 where not said
  std::int64_t threads = 0;
};

struct NsightTable {
  std::vector<KernelTotal> kernels;  // in the order in which the file names them first
  std::int64_t skipped = 0;          // rows that are none of the table
};

// Units stand in the cells ("71.065 s", "5.4 us") or in the header ("Total Time (ns)"). kBadInput in one line that
// starts with `origin`: no such table.
Result<NsightTable> parse_nsight_table(std::string_view text, const std::string& origin);

// Whether `text`, a file or its beginning, has the header of such a table.
bool looks_like_nsight_table(std::string_view text);

}  // namespace moetax
