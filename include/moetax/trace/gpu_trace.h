// What a trace file says about one rank, whatever its format: who ran what on which stream and when. Compact: a job's
// rank may have tens of millions of events.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "moetax/base/ids.h"
#include "moetax/trace/name_table.h"

namespace moetax {

enum class GpuEventKind : std::uint8_t {
  kKernel,            // on a device's stream
  kCopy,              // a copy on a device's stream
  kFill,              // a memset on a device's stream
  kDeviceAnnotation,  // a user's range as the device saw it
  kRuntime,           // a call of the device's runtime or driver, on a host thread
  kHostOp,            // an operator of the framework, on a host thread
  kAnnotation,        // a user's range, on a host thread
};
inline constexpr bool on_device(GpuEventKind kind) {
  return kind <= GpuEventKind::kFill;
}

// 32 bytes, so that 16 million of them are half a gigabyte.
struct GpuEvent {
  std::int64_t start_ns = 0;  // on the clock of the file
  std::int64_t duration_ns = 0;
  NameTable::Id name = 0;
  std::uint32_t track : 24 = 0;  // an index of GpuTrace::tracks
  std::uint32_t kind_bits : 8 = 0;
  std::uint32_t correlation = 0;  // joins a runtime call and what it started; 0: unknown
  std::int32_t collective = -1;   // an index of GpuTrace::collectives

  GpuEventKind kind() const { return static_cast<GpuEventKind>(kind_bits); }
  std::int64_t end_ns() const { return start_ns + duration_ns; }
};
static_assert(sizeof(GpuEvent) == 32);

// Events in blocks: growing never copies, so memory stays at what is kept.
class GpuEventList {
 public:
  GpuEventList() = default;
  GpuEventList(GpuEventList&&) = default;  // moved, never copied
  GpuEventList& operator=(GpuEventList&&) = default;
  void push_back(const GpuEvent& event) {
    if (size_ % kBlock == 0) blocks_.push_back(std::make_unique<Block>());
    (*blocks_.back())[size_++ % kBlock] = event;
  }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  GpuEvent& operator[](std::size_t i) { return (*blocks_[i / kBlock])[i % kBlock]; }
  const GpuEvent& operator[](std::size_t i) const { return (*blocks_[i / kBlock])[i % kBlock]; }

 private:
  static constexpr std::size_t kBlock = std::size_t{1} << 15;
  using Block = std::array<GpuEvent, kBlock>;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::size_t size_ = 0;
};

// Where events happen: a stream of a device, or a host thread.
struct GpuTrack {
  int device = -1;          // -1 for host threads
  std::int64_t stream = 0;  // of the device
  std::string process, thread;
};

// What the framework noted about a collective, on its kernel or on the operator that started it. -1 or empty: not said.
struct CollectiveNote {
  NameTable::Id operation = 0;   // "allreduce"; names[0] is ""
  NameTable::Id dtype = 0;       // "BFloat16"
  NameTable::Id group = 0;       // the process group's name
  NameTable::Id group_what = 0;  // its description
  NameTable::Id ranks = 0;       // "[0, 1]", cut at 30 by the framework
  std::int64_t in_elements = -1, out_elements = -1;
  std::int64_t sequence = -1;
  int group_size = -1;
  int source = -1, destination = -1;  // of point-to-point
};

// How much of a file was used.
struct TraceReadCounts {
  std::int64_t bytes = 0;          // unpacked
  std::int64_t events = 0;         // all that were seen
  std::int64_t ignored = 0;        // sound, of kinds that nothing here uses (Python frames, arrows, metadata)
  std::int64_t damaged = 0;        // could not be read
  std::int64_t first_damage = -1;  // byte of the unpacked file
  bool cut = false;                // the file ends before its JSON does
  std::string cut_why;
};

struct GpuTrace {
  std::string file, kind;  // kind: "pytorch-trace", ...
  NameTable names;         // [0] is ""
  GpuEventList events;     // as in the file: not sorted
  std::vector<GpuTrack> tracks;
  std::vector<CollectiveNote> collectives;
  Rank rank = kNoRank;  // as the file says
  int world_size = -1;
  std::string backend, host, job;    // where the file says
  std::vector<std::string> devices;  // their models
  TraceReadCounts read;
};

}  // namespace moetax
