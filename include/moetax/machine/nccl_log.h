// What NCCL and RCCL wrote about a job: which ranks are linked by what, over which adapters, and what went wrong.
//
// The log is the standard output of a job under NCCL_DEBUG=INFO, with anything else in between: several processes,
// lines of two of them run together, launchers' prefixes, the application's own text.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "moetax/base/result.h"
#include "moetax/machine/topology.h"

namespace moetax {

enum class NcclTransport : std::uint8_t {
  kP2p,    // over NVLink, XGMI or PCIe, GPU to GPU
  kShm,    // through the host's memory
  kNet,    // over an adapter
  kOther,  // NVLS, CollNet and what later versions bring
};
std::string_view nccl_transport_name(NcclTransport transport);  // "P2P", "SHM", "NET", "other"

// One connection, "Channel 00/0 : 0[0] -> 1[1] via P2P/IPC", of any of the forms NCCL has had.
struct NcclEdge {
  int from = 0, to = 0;      // ranks, of a communicator the line does not name
  std::string from_at = {};  // what stands in brackets: a device number, or a PCI address in older versions
  std::string to_at = {};
  NcclTransport transport = NcclTransport::kOther;
  std::string via = {};      // all of it: "P2P/CUMEM/read", "NET/IBext_v8/5(2)/GDRDMA"
  std::string network = {};  // of NET: "IB", "IBext_v8", "Socket", "AWS Libfabric"
  int adapter = -1;          // of NET: number of the adapter; -1 where unknown
  int proxy_rank = -1;       // of NET: the rank on whose GPU's behalf it goes (PXN); -1 when its own
  bool gpu_direct = false;   // of NET: the adapter reads the GPU's memory
  std::string host = {};     // that wrote it; empty where its prefix was lost
  std::int64_t line = 0;     // where first seen
  std::int64_t count = 0;    // lines that say so: channels, and both sides of NET

  // The two ranks, what is in brackets, and `via` tell edges apart; so does the host.
};

struct NcclMember {
  int rank = 0;
  std::string host = {};
  int device = -1;          // the process's CUDA device; -1 where unknown
  std::string bus_id = {};  // "b2000"; empty where unknown
  bool complete = false;    // its initialisation ended
};

struct NcclCommunicator {
  std::string id = {};  // commId; empty in older versions, where communicators of a size cannot be told apart
  int ranks = 0;        // its size
  int nodes = 0;        // 0 where unknown
  std::vector<NcclMember> members = {};  // by rank; those whose lines are in the log
  std::int64_t line = 0;
};

struct NcclAdapter {
  std::string host = {};
  int number = 0;         // what edges call it
  std::string name = {};  // "mlx5_0", "eth0"
  std::string kind = {};  // "IB", "RoCE", "Socket"
};

// A warning or an error, once however often it was written.
struct NcclProblem {
  std::string text = {};  // without the prefix; at most 300 characters
  std::string host = {};  // that wrote it first
  std::int64_t line = 0;
  std::int64_t count = 0;
};

// "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=..., ...)" of PyTorch.
struct NcclTimeout {
  int rank = -1;               // -1 where the line does not say
  std::int64_t sequence = -1;  // of the collective in its group; all these -1 where not said
  std::string op = {};         // "ALLREDUCE", "_ALLGATHER_BASE"
  std::int64_t elements_in = -1;
  std::int64_t elements_out = -1;
  std::int64_t limit_ms = -1;
  std::int64_t ran_ms = -1;
  std::string group = {};  // process group, as the line has it; empty where it does not
  std::int64_t line = 0;
};

// A way between two devices as NCCL_DEBUG_SUBSYS=GRAPH lists them: "GPU/0-4e000 (4/24.0/PHB)".
struct NcclPath {
  std::string host = {};
  std::string from = {};  // "4e000"
  std::string to = {};
  LinkKind kind = LinkKind::kUnknown;
  double gbs = 0;  // as NCCL counts on it
  std::int64_t line = 0;
};

struct NcclLog {
  std::string version = {};  // "2.18.3+cuda12.1"; empty where not said
  bool rccl = false;
  std::vector<std::string> networks = {};  // "Using network IB": what was chosen for traffic between nodes
  std::vector<NcclAdapter> adapters = {};
  std::vector<NcclCommunicator> communicators = {};
  std::vector<NcclEdge> edges = {};
  std::vector<std::vector<int>> nvls_heads = {};     // ranks of each, in order of number
  std::map<std::string, std::string> settings = {};  // "NCCL_P2P_LEVEL set by environment to XGMI"
  std::vector<NcclProblem> problems = {};
  std::vector<NcclTimeout> timeouts = {};
  std::vector<NcclPath> paths = {};

  std::int64_t lines = 0;     // of the file
  std::int64_t messages = 0;  // of NCCL
  std::int64_t broken = 0;    // messages that begin like an edge and cannot be read
  std::int64_t dropped = 0;   // facts beyond what is kept: see NcclLogReader
};

// Reads a log as it comes, in memory that does not grow with it: repeated facts are counted, and of each sort so many
// different ones are kept (65536 edges, members and paths, fewer of the others).
class NcclLogReader {
 public:
  NcclLogReader();
  ~NcclLogReader();
  NcclLogReader(NcclLogReader&&) noexcept;
  NcclLogReader& operator=(NcclLogReader&&) noexcept;

  void take(std::string_view piece);  // any cut of the text
  NcclLog finish();                   // once, at the end

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// kBadInput in one line that starts with `origin`: nothing of NCCL in it.
Result<NcclLog> parse_nccl_log(std::string_view text, const std::string& origin);
// The same of a file of any size.
Result<NcclLog> read_nccl_log(const std::string& path);

// Whether `text`, a file or its beginning, holds lines that parse_nccl_log reads.
bool looks_like_nccl_log(std::string_view text);

}  // namespace moetax
