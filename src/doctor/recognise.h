// What an input is, by what it holds.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moetax::doctor {

enum class InputKind : std::uint8_t {
  kModelConfig,
  kDeepSpeed,  // its JSON
  kJobJson,    // another JSON of settings
  kJobYaml,
  kJobToml,
  kScript,       // shell, or a command line
  kEnvironment,  // NAME=value a line
  kTopology,     // of one machine, text or XML
  kNcclLog,
  kBandwidth,   // a table of nccl-tests
  kRanks,       // what each rank waits in: RAS, flight recorder
  kFlightDump,  // the last collectives of a rank
  kInspector,   // each collective of a rank, with its time
  kHostLink,    // copies between host and GPU, measured
  kKernels,     // a table of the times of kernels
  kLoad,        // how often each expert was chosen
  kBill,
  kMachineCosts,
  kTrace,  // profiler traces: another verb's
  kLog,    // anything a program printed
  kUnknown,
};
const char* to_string(InputKind kind);

struct Recognised {
  InputKind kind = InputKind::kUnknown;
  std::vector<std::string> nearest;  // of an unknown one: the kinds it looks most like and what lacks
};
Recognised recognise(std::string_view text);

}  // namespace moetax::doctor
