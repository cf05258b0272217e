// Files and folders → the traces of one job.
#pragma once

#include <string>
#include <vector>

#include "moetax/base/function_ref.h"
#include "moetax/base/result.h"
#include "moetax/report/bill.h"
#include "moetax/trace/gpu_trace.h"

namespace moetax::cli {

struct TraceInputs {
  std::vector<GpuTrace> traces;     // of one job, a rank once
  std::vector<BillSource> sources;  // every file, used or not
};

// Reads all files, two at a time where there are cores. The job is the one with most ranks here; files of others, of a
// rank that is there already, of ranks not asked for, and what is no trace become sources with nothing used. kBadInput
// when no file could be used: the first file's reason.
Result<TraceInputs> read_inputs(const std::vector<std::string>& paths, const std::vector<Rank>& ranks,
                                FunctionRef<void(const std::string&)> progress);

}  // namespace moetax::cli
