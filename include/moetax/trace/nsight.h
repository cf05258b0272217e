// Exports of Nsight Systems to SQLite (nsys export --type sqlite).
#pragma once

#include <string>

#include "moetax/base/result.h"
#include "moetax/trace/gpu_trace.h"

namespace moetax {

// Whether the file begins as an SQLite database does.
bool is_sqlite(const std::string& path);

// Kernels, copies, fills and runtime calls of all devices in the file. Tables and columns that a version leaves out are
// done without; a database that breaks off gives what could be read (GpuTrace::read). kBadInput, naming the file: it is
// no database or none of Nsight Systems.
Result<GpuTrace> read_nsight(const std::string& path);

}  // namespace moetax
