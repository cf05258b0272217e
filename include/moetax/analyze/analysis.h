// Traces of a job's ranks → where the time of each device went, and who waited for whom.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "moetax/analyze/kernel_rules.h"
#include "moetax/base/ids.h"
#include "moetax/trace/gpu_trace.h"

namespace moetax {

// One device of one rank. Times are lengths of unions, so that overlapping kernels count once:
//   window = compute + exposed + copy + idle;   comm = exposed + hidden.
struct DeviceTimes {
  Rank rank = kNoRank;
  int device = 0;
  std::size_t trace = 0;                                    // an index of the traces given
  std::int64_t begin_ns = 0, end_ns = 0;                    // of its work, on its own clock: the window
  std::int64_t compute_ns = 0;                              // any kernel that neither communicates nor only copies
  std::int64_t comm_ns = 0, exposed_ns = 0, hidden_ns = 0;  // communication; beside compute or not
  std::int64_t sync_ns = 0;                                 // communication that moves no tokens (notify, barriers)
  std::int64_t copy_ns = 0;                                 // copies and fills beside neither
  std::int64_t idle_ns = 0;                                 // nothing on any stream
  std::optional<std::int64_t> idle_host_ns;  // of it, until the next work had been launched; unknown without launches
  std::optional<std::int64_t> wait_ns;       // of exposed: until the last rank had arrived, and nothing was moved
  std::optional<std::int64_t> clock_offset_ns;  // to add to its clock for the first device's
  std::int64_t kernels = 0;
};

// What the last to arrive did while others waited for it.
enum class LateBecause : std::uint8_t { kCompute, kComm, kCopy, kIdle };

struct WaitedFor {
  std::size_t waiter = 0, late = 0;            // indices of Analysis::devices
  std::int64_t ns = 0;                         // exposed waiting
  std::int64_t late_did_ns[4] = {0, 0, 0, 0};  // by LateBecause, of the waits' lengths
  std::string kernel;                          // the late rank's longest kernel meanwhile, may be empty
};

// Kernels of one operation.
struct CommTotals {
  KernelClass what;
  std::int64_t kernels = 0;     // all devices
  std::int64_t ns = 0;          // sum over kernels and devices
  std::int64_t exposed_ns = 0;  // beside compute, as a union on each device, summed over devices
  std::int64_t bytes = 0;       // sum of what each rank sends, of the kernels that say it
  std::int64_t calls = 0;       // matched across ranks
  std::int64_t wait_ns = 0;     // of matched calls, sum over ranks
  std::int64_t transfer_ns = 0;
  std::int64_t shortest_ns = 0;    // sum over matched calls of the shortest rank's duration
  std::size_t longest_device = 0;  // who spent the longest in matched calls
  std::int64_t longest_ns = 0;
  std::size_t last_device = SIZE_MAX;  // who arrived last most often
};

struct ClockAlignment {
  std::int64_t collectives = 0;  // matched across ranks
  std::int64_t unmatched = 0;    // kernels of communication without their peers'
  std::int64_t doubtful = 0;     // matched, but one had ended before another began
  bool whole_groups = true;      // every member of each group is here
  double residual_us = 0;        // half of the matched ends lie within this of their collective's median end
};

struct TraceStep {
  std::string name;
  std::int64_t start_ns = 0, end_ns = 0;  // on the host, of the first device's rank
};

struct NameTotal {
  std::string name;
  std::int64_t kernels = 0, ns = 0;
};

struct Analysis {
  std::vector<DeviceTimes> devices;  // by rank, then device
  std::vector<CommTotals> comm;      // longest first
  std::vector<WaitedFor> waits;      // longest first
  std::vector<NameTotal> unknown;    // names that look like communication and are in no rule
  std::vector<TraceStep> steps;
  std::optional<ClockAlignment> alignment;  // with two devices or more
};

// All traces are of one job. Traces without work on a device add nothing. With one device wait_ns stays unknown.
Analysis analyze(const std::vector<GpuTrace>& traces, const KernelRules& rules);

}  // namespace moetax
