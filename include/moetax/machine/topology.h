// The devices of one machine and how each pair of them is linked, as system tools print it.
//
// A topology holds what its source said and nothing else: a pair the source does not name, or names in a way that
// cannot be read, has LinkKind::kUnknown. What is derived from it (islands, expert-parallel groups, network adapters)
// is in topology_facts.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "moetax/base/result.h"

namespace moetax {

// What two devices' traffic crosses, fast to slow. The PCIe classes are those of `nvidia-smi topo -m`.
enum class LinkKind : std::uint8_t {
  kNvlink,   // NVLinks between the two, or to a switch that all share
  kXgmi,     // AMD's links between GPUs
  kPix,      // one PCIe bridge at most
  kPxb,      // several PCIe bridges, but no host bridge
  kPhb,      // a host bridge
  kNode,     // host bridges of one NUMA node
  kSys,      // the interconnect between NUMA nodes
  kUnknown,  // not said; sorts behind everything
};

struct Link {
  LinkKind kind = LinkKind::kUnknown;
  int lanes = 0;                 // NVLinks or XGMI links side by side; 0 where unknown
  int hops = 0;                  // XGMI links one after another; 0 where unknown
  double gbs = 0;                // nominal GB/s in one direction; 0 where unknown
  std::string_view source = {};  // where gbs is from, in words; of static life time

  friend bool operator==(const Link& a, const Link& b) {
    return a.kind == b.kind && a.lanes == b.lanes && a.hops == b.hops;
  }
};

// True when `a` is of a slower class than `b`, or of the same with more hops or fewer lanes.
bool slower(const Link& a, const Link& b);
std::string_view link_kind_name(LinkKind kind);  // "NVLink", "XGMI", "PIX", ..., "unknown"
std::string link_text(const Link& link);         // "NV18", "XGMI", "XGMI x4", "XGMI 2 hops", "PIX", "unknown"

enum class DeviceKind : std::uint8_t { kGpu, kNic };

struct Device {
  DeviceKind kind = DeviceKind::kGpu;
  int index = 0;                 // n of GPUn or NICn: what the machine's tools call it
  std::string name = {};         // "GPU0", "NIC0", "mlx5_0": as the source has it
  std::string adapter = {};      // of a NIC: the name drivers and NCCL_IB_HCA know it by; empty where unknown
  std::string bus_id = {};       // PCI address; empty where unknown
  std::string cpus = {};         // the CPUs it is near to, "0-23,48-71"; empty where unknown
  int numa_node = -1;            // -1 where unknown
  std::string_view vendor = {};  // of a GPU: "NVIDIA", "AMD", "Intel"; empty where unknown
  double gbs = 0;                // of a NIC: line rate in GB/s in one direction; 0 where unknown
};

// The files a topology can come from.
enum class TopologyFormat : std::uint8_t { kNvidiaSmi, kRocmSmi, kNcclXml, kLstopoXml };
std::string_view topology_format_name(TopologyFormat format);  // "nvidia-smi topo -m", ...

// Something in the source that was not used, and why.
struct SkippedLine {
  int line = 0;  // counted from 1; 0 when it is about the whole
  std::string why;
};

class Topology {
 public:
  static constexpr int kMaxDevices = 256;

  Topology() = default;
  // `devices` holds all GPUs first, then all NICs; every link is unknown. At most kMaxDevices.
  Topology(TopologyFormat format, int line, std::vector<Device> devices);

  TopologyFormat format() const { return format_; }
  int line() const { return line_; }  // of the source where this machine begins

  // Devices are numbered by position: GPUs 0 .. gpus() - 1, then NICs up to devices().size() - 1.
  const std::vector<Device>& devices() const { return devices_; }
  std::vector<Device>& devices() { return devices_; }
  const Device& device(int at) const { return devices_[static_cast<std::size_t>(at)]; }
  int gpus() const { return gpus_; }
  int nics() const { return static_cast<int>(devices_.size()) - gpus_; }

  // Between two different devices; the same in both directions.
  const Link& link(int a, int b) const { return links_[slot(a, b)]; }
  void set_link(int a, int b, const Link& link);
  // The fastest and the slowest link between two GPUs. Unknown when there is no pair; slowest() also when any is.
  Link fastest() const;
  Link slowest() const;
  int unknown_gpu_pairs() const;
  // Adds to skipped() how many pairs of GPUs have no known link, if any.
  void note_unknown_pairs();

  // What could not be used, in the order of lines. Only the first kMaxSkipped are kept; skipped_count() counts all.
  static constexpr std::size_t kMaxSkipped = 50;
  void skip(int line, std::string why);
  const std::vector<SkippedLine>& skipped() const { return skipped_; }
  std::size_t skipped_count() const { return skipped_count_; }

 private:
  std::size_t slot(int a, int b) const {
    return static_cast<std::size_t>(a) * devices_.size() + static_cast<std::size_t>(b);
  }

  TopologyFormat format_ = TopologyFormat::kNvidiaSmi;
  int line_ = 0;
  int gpus_ = 0;
  std::vector<Device> devices_;
  std::vector<Link> links_;  // [devices, devices]
  std::vector<SkippedLine> skipped_;
  std::size_t skipped_count_ = 0;
};

// Every machine in the text of one file, in order. `origin` stands for the file's name in messages.
//
// - `nvidia-smi topo -m`: tabs or blanks, banners, terminal colours and blank lines around and between rows, device
//   columns of any name ("NIC3", "mlx5_3"), cells or column names that have grown together, blank cells, rows or whole
//   lines cut off, legends. A row that cannot be laid over its columns without guessing is skipped and listed.
// - `rocm-smi --showtopo`: any of its matrices. XGMI by weight, 15 a link; PCIe of weight 40 (or two hops) as NODE,
// more
//   as SYS.
// - NCCL and RCCL topology XML (NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE). What passes a CPU is PHB, as NCCL has it. Without
//   gpu elements GPUs and NICs are known by their PCI classes, and links between GPUs are unknown.
// - The XML of lstopo (hwloc). Links between GPUs are unknown unless it holds a matrix of their bandwidths.
// XML that is cut off is read up to there.
//
// kBadInput in one line that starts with `origin`: no machine in it. The message says so when it is NCCL's graph XML.
Result<std::vector<Topology>> parse_topologies(std::string_view text, const std::string& origin);
// The same of a file of at most 64 MiB.
Result<std::vector<Topology>> read_topologies(const std::string& path);

// Whether `text`, a file or its beginning, holds something parse_topologies is likely to read.
bool looks_like_topology(std::string_view text);
// Whether it is NCCL's graph XML (NCCL_GRAPH_FILE): the channels NCCL chose, not what the machine is.
bool looks_like_nccl_graph(std::string_view text);

}  // namespace moetax
