// Files and folders → the traces of one job.
#pragma once

#include <string>
#include <vector>

#include "moetax/base/function_ref.h"
#include "moetax/base/result.h"
#include "moetax/report/bill.h"
#include "moetax/report/tables.h"
#include "moetax/trace/gpu_trace.h"

namespace moetax::cli {

// A file without a time line: its sums are told, no bill is made of it.
struct TableInput {
  std::string file;
  TableText table;
};

struct TraceInputs {
  std::vector<GpuTrace> traces;     // of one job, a rank once; empty where there are only tables
  std::vector<TableInput> tables;   // in the order of the files
  std::vector<BillSource> sources;  // every file, used or not
};

// Reads all files, two at a time where there are cores. The job is the one with most ranks here; files of others, of a
// rank that is there already, of ranks not asked for, and what is no trace become sources with nothing used; tables are
// described by `rules`. kBadInput when no file could be used: the first file's reason.
Result<TraceInputs> read_inputs(const std::vector<std::string>& paths, const std::vector<Rank>& ranks,
                                const KernelRules& rules, FunctionRef<void(const std::string&)> progress);

}  // namespace moetax::cli
