// What a machine or cluster was measured to cost: the links that moetax calibrate fitted, and machine.json.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "moetax/base/result.h"
#include "moetax/cost/link.h"

namespace moetax {

// What was timed, over bytes of one rank. "Shared": by all ranks at once, the slowest of them counts.
enum class LinkClass : std::uint8_t {
  kCopy,          // rows from place to place in a rank's own memory, shared
  kSum,           // the weighted sum of six rows into one, shared; bytes of the rows that are read
  kMemory,        // into the memory of a rank of the same node, alone, with its flag
  kMemoryShared,  // the same, shared
  kLink,          // a message to a rank of another node, alone
  kLinkShared,    // the same while all send to the next node and hear from the one before
  kLinkStream,    // rows to all ranks of other nodes as flat carries them, shared, with the copies at their ends
  kLinkDirect,    // as direct carries them
  kLinkRelay,     // as ring carries them, over the bytes of all hops
  kLinkTwoLevel,  // as two-level carries them
};
inline constexpr int kNumLinkClasses = 10;
const char* to_string(LinkClass link);  // "copy", "sum", "memory", "memory-shared", "link", ...

struct MeasuredLink {
  LinkClass link = LinkClass::kCopy;
  std::string what;                 // for people
  std::vector<LinkSample> samples;  // median times, by size
  LinkCost cost;                    // fitted to them
};

// Calls of an exchange that bring nothing: what remains is agreeing, planning and flags. All medians, in us.
struct CallCosts {
  double dispatch_us = 0;       // of all ranks, without tokens: counts offered, flags, one meeting
  double combine_us = 0;        // flags, one meeting
  double node_dispatch_us = 0;  // the same over the ranks of one node only
  double node_combine_us = 0;
  double node_push_us = 0;  // over those of one node, rows pushed: a second round of flags
  double choice_ns = 0;     // of planning, per (token, expert) of the rank
};

struct MachineCosts {
  std::string tool_version, cpu, isa, kernel, transport;
  int cores = 0;             // of one node
  std::size_t l2_bytes = 0;  // of a core; 0: not known
  int ranks = 0, nodes = 0;
  std::vector<MeasuredLink> links;
  CallCosts calls;

  const LinkCost* find(LinkClass link) const;  // null: not measured
  double ranks_per_node() const { return static_cast<double>(ranks) / nodes; }
};

// moetax.machine/1, see schema/machine.schema.json.
std::string to_json(const MachineCosts& machine);
// kBadInput naming `name`, the key and what was expected; numbers are finite and in range, whoever wrote them.
Result<MachineCosts> parse_machine_costs(std::string_view text, const std::string& name);
Result<MachineCosts> read_machine_costs(const std::string& path);

}  // namespace moetax
