// The tables of nccl-tests (all_reduce_perf, alltoall_perf, ...) and rccl-tests: what a machine's collectives reach.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "moetax/base/result.h"
#include "moetax/machine/topology.h"

namespace moetax {

struct NcclTestsTiming {
  double time_us = 0;       // 0 where the table has N/A
  double algbw_gbs = 0;     // bytes over time
  double busbw_gbs = 0;     // algbw times the collective's factor
  std::int64_t wrong = -1;  // elements that were wrong; -1 where not checked
};

struct NcclTestsRow {
  std::int64_t bytes = 0;
  std::int64_t elements = 0;
  std::string type = {};       // "float", "bfloat16"
  std::string reduction = {};  // "sum"; empty where the collective has none
  NcclTestsTiming out_of_place = {};
  NcclTestsTiming in_place = {};
  int line = 0;
};

struct NcclTestsTable {
  std::string collective = {};          // "all_reduce", from a line that names the program; empty where none does
  int ranks = 0;                        // 0 where not listed
  std::vector<std::string> hosts = {};  // of the ranks listed, each once
  std::vector<NcclTestsRow> rows = {};
  double average_busbw_gbs = 0;           // as printed; 0 where it is not
  int line = 0;                           // where it begins
  std::vector<SkippedLine> skipped = {};  // at most 50

  // busbw over algbw, from the largest row that has both; 0 without one. 2 (n-1)/n says all-reduce, (n-1)/n all-to-all,
  // all-gather or reduce-scatter, 1 broadcast or reduce.
  double bus_factor() const;
};

// The tables in `text`, with anything else between their lines. kBadInput in one line that starts with `origin`: none.
Result<std::vector<NcclTestsTable>> parse_nccl_tests(std::string_view text, const std::string& origin);
// The same of a file of at most 64 MiB.
Result<std::vector<NcclTestsTable>> read_nccl_tests(const std::string& path);

// Whether `text`, a file or its beginning, holds such a table's header or rows.
bool looks_like_nccl_tests(std::string_view text);

}  // namespace moetax
