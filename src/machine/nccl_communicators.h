// The communicators of a log, put together from the lines of their ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "machine/nccl_line.h"
#include "moetax/machine/nccl_log.h"

namespace moetax {

class NcclCommunicators {
 public:
  // "ncclCommInitRank comm 0x6699950 rank 7 nranks 8 cudaDev 1 nvmlDev 1 busId 88000 commId 0x70fb - Init COMPLETE",
  // "comm 0x55d9 rank 6 nRanks 16 nNodes 2 localRanks 8", and in RCCL "Trees [0] 2/-1/-1->3->1 comm 0xaa nRanks 08
  // busId ce000". Anything else, and what is said when they are destroyed, is passed over.
  void take(const NcclMessage& message, std::int64_t line);

  std::vector<NcclCommunicator> result();  // once; members sorted by rank
  std::int64_t dropped() const { return dropped_; }

 private:
  // What one line says.
  struct Fact {
    NcclMember member = {};
    int ranks = 0;
    int nodes = 0;
    std::int64_t line = 0;
    std::string address = {};  // of the communicator in its process: this and the host find the id of lines without
  };
  void add(const Fact& fact, std::string_view id);

  std::vector<NcclCommunicator> all_;
  std::unordered_map<std::string, std::size_t> communicators_, members_;  // where each is
  std::unordered_map<std::string, std::string> ids_;                      // by address
  std::vector<Fact> without_id_;
  std::int64_t dropped_ = 0;
};

}  // namespace moetax
