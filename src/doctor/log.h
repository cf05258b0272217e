// Lines of logs that say something about an exchange.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "moetax/doctor/finding.h"

namespace moetax::doctor {

enum class LogKind : std::uint8_t {
  kWatchdog,       // a collective ran into the watchdog: op, rank, seq, elements
  kTraceCache,     // parameters came in another order than in the step before
  kDeepEpTimeout,  // a receive of DeepEP ended by time: phase
  kPeerTimeout,    // a rank says which peer it waits for: rank, peer
  kJitWarmup,      // kernels are being compiled: eta_s where said
  kOutOfMemory,
  kShapeChanged,      // recomputation met other shapes, or other tensors (op): numbers, second
  kGpuFallback,       // GPU-initiated sends are not in use
  kBufferCap,         // more tokens than the buffer of a rank: limit where said
  kCaptureRefused,    // something cannot be recorded into a graph
  kDefaultMoeConfig,  // kernels without tuned sizes
  kDtypeMismatch,     // operands of two types: text holds both
  kSplitMismatch,     // split sizes that do not add up
  kSplits,            // a rank's lists: rank, sends, receives
  kSharedMemory,      // /dev/shm is full
  kLockedMemory,      // memory cannot be registered
  kRankCounts,        // tokens or batches of each rank: numbers
  kThroughput,        // tokens per second and GPU
  kRebalance,         // experts were moved: seconds
  kTuned,             // DeepEP's tuning: GB/s, groups of nodes
  kExited,            // a rank ended
  kMemoryUse,         // of a GPU: used and total GiB
  kFirstStep,         // at the first optimizer step
  kGpuName,           // a GPU is named
  kMissingRank,       // RAS: a rank does not answer: rank
  kRawLink,           // a raw put between two GPUs or hosts: GB/s
  kPortCounter,       // what an adapter's port sent: its name (op), numbers
  kCacheHits,         // of experts on the GPU: per cent
  kLayersOnGpu,       // llama.cpp: layers on the GPU and all
  kExpertsOnHost,     // llama.cpp: a tensor of experts is kept by the host
  kModelBuffer,       // llama.cpp: where (op) and how many MiB of weights
  kDeviceFree,        // llama.cpp: MiB free on a GPU
  kOperationCount,    // RAS: so many ranks are at an operation: numbers, seq
};

struct LogEvent {
  LogKind kind = LogKind::kWatchdog;
  Evidence at;
  std::optional<int> rank, peer;
  std::optional<long long> seq, elements, limit;
  std::string op, group;
  std::vector<double> numbers;      // see the kinds
  std::vector<double> second = {};  // a second list
};

struct LogFacts {
  std::vector<LogEvent> events;  // in the order of the text
  // The longest silence between two lines with a time of day, before the event that ends a log.
  struct Gap {
    double seconds = 0;
    Evidence before, after;
  };
  std::vector<Gap> gaps;

  std::vector<const LogEvent*> of(LogKind kind) const;
  bool has(LogKind kind) const { return !of(kind).empty(); }
};

// Adds what `text` says.
void read_log(std::string_view text, const std::string& file, LogFacts& out);
// The JSON of NCCL's RAS: which ranks do not answer.
void read_ranks(std::string_view text, const std::string& file, LogFacts& out);

}  // namespace moetax::doctor
