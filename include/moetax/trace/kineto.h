// PyTorch profiler (Kineto) traces: Chrome trace JSON, plain or packed by gzip or zstd.
#pragma once

#include <string>
#include <string_view>

#include "moetax/base/result.h"
#include "moetax/trace/gpu_trace.h"

namespace moetax {

struct KinetoOptions {
  // Bytes taken from the file at once. Memory beyond the events kept is a few of these and the longest event.
  std::size_t chunk_bytes = std::size_t{1} << 20;
};

// Reads a file of any size in chunks. What of it is sound is kept, what is not is counted (GpuTrace::read). Times keep
// their nanoseconds, whether written as numbers or strings; an integer beyond 9.2e15 us can only be nanoseconds and is
// taken as such. kBadInput, naming the file and what it seems to be: it cannot be read or is no trace.
Result<GpuTrace> read_kineto(const std::string& path, const KinetoOptions& options = {});

// The same of a text in memory; `origin` stands for the file's name.
Result<GpuTrace> parse_kineto(std::string_view text, const std::string& origin, const KinetoOptions& options = {});

}  // namespace moetax
