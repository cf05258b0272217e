// Text of a Kineto trace like those of training jobs: operators, launches, kernels, arrows, about 250 bytes an event.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <iterator>
#include <string>

namespace moetax::bench {

inline std::string trace_head() {
  return "{\n  \"schemaVersion\": 1,\n  \"distributedInfo\": {\"backend\": \"nccl\", \"rank\": 0, \"world_size\": 8},\n"
         "  \"traceEvents\": [\n";
}
inline std::string trace_tail() {
  return "  {\"ph\": \"i\", \"name\": \"Record Window End\", \"pid\": \"\", \"tid\": \"\", \"ts\": 1, \"s\": \"g\"}\n  "
         "],\n"
         "  \"traceName\": \"generated\"\n}\n";
}

// Event number i, with its comma. Of ten: four operators, three launches, two kernels, one arrow.
inline void append_event(std::int64_t i, std::string& out) {
  const std::int64_t us = 4203669604595 + i * 3, ns = i * 7 % 1000;
  auto to = std::back_inserter(out);
  switch (i % 10) {
    case 0:
    case 1:
    case 2:
    case 3:
      fmt::format_to(
          to,
          "  {{\n    \"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::op_{}\", \"pid\": 597913, \"tid\": "
          "597913,\n    \"ts\": {}.{:03}, \"dur\": {}.{:03},\n    \"args\": {{\n      \"External id\": "
          "{},\"Record function id\": 0, \"Concrete Inputs\": [\"\", \"0\"], \"Input type\": [\"float\", "
          "\"Scalar\"], \"Ev Idx\": {}\n    }}\n  }},\n",
          i % 300, us, ns, i % 50, ns, i, i);
      return;
    case 4:
    case 5:
    case 6:
      fmt::format_to(to,
                     "  {{\n    \"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaLaunchKernel\", \"pid\": "
                     "597913, \"tid\": 597913,\n    \"ts\": {}.{:03}, \"dur\": {}.{:03},\n    \"args\": {{\n      "
                     "\"External id\": {}, \"cbid\": 211, \"correlation\": {}\n    }}\n  }},\n",
                     us, ns, i % 9, ns, i, i);
      return;
    case 7:
    case 8:
      fmt::format_to(
          to,
          "  {{\n    \"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"void at::native::vectorized_elementwise_kernel<4, "
          "at::native::CUDAFunctor_add<float>, std::array<char*, {}ul> >(int, at::native::CUDAFunctor_add<float>, "
          "std::array<char*, 3ul>)\", \"pid\": 0, \"tid\": 7,\n    \"ts\": {}.{:03}, \"dur\": {}.{:03},\n    \"args\": "
          "{{\n      \"External id\": {}, \"queued\": 0, \"device\": 0, \"context\": 1, \"stream\": 7, "
          "\"correlation\": {}, \"registers per thread\": 32, \"shared memory\": 0, \"blocks per SM\": 1.5, \"warps "
          "per SM\": 12, \"grid\": [160, 1, 1], \"block\": [128, 1, 1], \"est. achieved occupancy %\": 18\n    }}\n  "
          "}},\n",
          i % 200, us, ns, i % 90, ns, i, i);
      return;
    default:
      fmt::format_to(to,
                     "  {{\n    \"ph\": \"s\", \"id\": {}, \"pid\": 597913, \"tid\": 597913, \"ts\": {}.{:03}, "
                     "\"cat\": \"ac2g\", \"name\": \"ac2g\"\n  }},\n",
                     i, us, ns);
  }
}

}  // namespace moetax::bench
