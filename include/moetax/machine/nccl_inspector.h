// What NCCL's inspector plug-in writes while a job runs: every collective of a rank with its size, time and bandwidth.
//
// JSON objects, one a line or spread over several (NCCL_INSPECTOR_DUMP_VERBOSE or not), or Prometheus text with ranges
// of sizes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "moetax/base/result.h"

namespace moetax {

struct InspectorCall {
  std::string communicator = {};  // its id; of Prometheus text its name
  int rank = -1;                  // in it; -1 where not said
  int ranks = 0, nodes = 0;       // of it; 0 where not said
  std::string host = {};
  std::string device = {};     // "GPU0", of Prometheus text
  std::string op = {};         // "AllReduce", "Send"
  std::int64_t sequence = -1;  // among the calls of this op in it
  std::int64_t bytes = -1;     // -1 where a range is said
  std::string size = {};       // the range: "4-5GB"
  double us = 0;               // 0 where not said, as the bandwidths
  double algbw_gbs = 0, busbw_gbs = 0;
  std::int64_t start_us = -1, end_us = -1;  // of its kernels, since 1970; verbose dumps only
};

struct InspectorDump {
  std::string version = {};
  std::vector<InspectorCall> calls = {};  // as in the file, at most 1048576
  std::int64_t skipped = 0;               // objects or lines that hold no call
  std::string trouble = {};               // where it breaks off; empty: all of it was read
};

// kBadInput in one line that starts with `origin`: nothing of the inspector in it.
Result<InspectorDump> parse_nccl_inspector(std::string_view text, const std::string& origin);

// Whether `text`, a file or its beginning, looks like one.
bool looks_like_nccl_inspector(std::string_view text);

}  // namespace moetax
