// Dumps of PyTorch's flight recorder: the last collectives of one rank, and how far each came.
//
// Written when a watchdog fires (TORCH_NCCL_TRACE_BUFFER_SIZE, TORCH_NCCL_DUMP_ON_TIMEOUT), a file a rank, as a pickle
// or as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "moetax/base/result.h"

namespace moetax {

struct FlightGroup {
  std::string name = {};        // "0"
  std::string what = {};        // its description: "default_pg", "mesh_ep"
  std::vector<int> ranks = {};  // global, ascending; empty where the dump does not list them
};

enum class FlightState : std::uint8_t { kUnknown, kScheduled, kStarted, kCompleted };
std::string_view flight_state_name(FlightState state);

// One collective or message. -1: not said.
struct FlightCall {
  int group = 0;               // an index of FlightDump::groups
  std::int64_t sequence = -1;  // among the collectives of its group; of messages, among its messages
  std::string op = {};         // "all_to_all", "send 0->1"
  bool message = false;        // point to point
  FlightState state = FlightState::kUnknown;
  std::vector<std::int64_t> in_elements = {};  // of each tensor
  std::vector<std::int64_t> out_elements = {};
  std::string dtype = {};                                            // of the first that goes in: "BFloat16"
  std::int64_t created_ns = -1, started_ns = -1, completed_ns = -1;  // since 1970
  std::int64_t timeout_ms = -1;
  std::string where = {};  // "model.py:120 forward", the innermost place outside of PyTorch

  std::int64_t elements_in() const;
  std::int64_t elements_out() const;
};

struct FlightDump {
  std::string version = {};
  int rank = -1;  // from the file's name: behind "rank", or at its end; -1: neither
  std::vector<FlightGroup> groups = {};
  std::vector<FlightCall> calls = {};  // as recorded, at most 262144
  std::int64_t skipped = 0;            // entries that hold no collective
  std::string trouble = {};            // where it breaks off; empty: all of it was read
};

// From a pickle, of which nothing is run, or JSON or what Python prints of it. `origin` is the file's name. kBadInput
// in one line that starts with it: no dump of a flight recorder.
Result<FlightDump> parse_flight_dump(std::string_view bytes, const std::string& origin);

// Whether `bytes`, a file or its beginning, look like one.
bool looks_like_flight_dump(std::string_view bytes);

}  // namespace moetax
