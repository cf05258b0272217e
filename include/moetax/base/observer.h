// What the working rooms tell whoever measures them. The rooms know only this interface; the meter implements it.
//
// A rank's wall time is cut into spans. Spans nest, and the time of a span is what its inner spans leave over, so the
// parts of a step cannot overlap and always add up to it. Observing is optional: a null Observer costs one branch.
// Calls come from the rank's own thread only.
#pragma once

#include <cstdint>

#include "moetax/base/ids.h"

namespace moetax {

// Where a rank's wall time goes. See docs/bill.md for the definitions; each instant belongs to exactly one part.
enum class Part : std::uint8_t {
  kCompute,  // router, routed and shared experts, forward and backward
  kPack,     // moving or converting rows inside this rank's memory, outside compute
  kWire,     // copying to or from another rank's memory, or idle after the last peer arrived until data is complete
  kWait,     // idle, because a peer had not arrived yet
  kLaunch,   // fixed cost of starting and completing an exchange
  kOther,    // the rest
};
inline constexpr int kNumParts = 6;

// One idle period and the peer that ended it.
struct WaitRecord {
  Rank peer = kNoRank;  // the last peer to arrive
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
  std::int64_t off_cpu_ns = 0;  // of the spinning part, how long this thread was off the CPU against its will
};

// One completed exchange as seen by one rank. Bytes are counted where the rows move, not computed from a formula.
struct ExchangeRecord {
  const char* name = "";      // "dispatch", "combine", "dispatch_grad", "combine_grad", "reduce (...)"
  const char* phase = "";     // "forward" or "backward"
  const char* family = "";    // "all-to-all" or "all-reduce"
  std::uint64_t number = 0;   // counts per exchange group, the same on all ranks
  std::int64_t start_ns = 0;  // this rank's arrival
  std::int64_t end_ns = 0;
  std::int64_t logical_bytes = 0;   // once per destination rank, own rank included
  std::int64_t physical_bytes = 0;  // what left this rank (dispatch) or came to it (combine)
  std::int64_t internode_bytes = 0;
  std::int64_t wait_ns = 0;
  std::int64_t transfer_ns = 0;  // the wire part
  Rank last_rank = kNoRank;      // who arrived last
  std::int64_t hidden_ns = 0;    // of start to end, how long the rank did something else
};

// Rows that came from one rank of another node in one exchange, as a stream of messages: all but the first, from when
// the first was there until the last was. Their rate is that of the way between the two.
struct FlowRecord {
  Rank peer = kNoRank;
  std::int64_t bytes = 0;
  std::int64_t start_ns = 0, end_ns = 0;
};

class Observer {
 public:
  virtual ~Observer() = default;
  virtual void enter(Part part, const char* name) = 0;  // `name` outlives the observer (a literal)
  virtual void leave() = 0;                             // closes the innermost open span
  virtual void waited(const WaitRecord& wait) = 0;
  virtual void exchanged(const ExchangeRecord& exchange) = 0;
  virtual void flowed(const FlowRecord&) {}  // before the exchanged() of its exchange; only where streams are
};

// Opens a span for the lifetime of the object.
class Span {
 public:
  Span(Observer* observer, Part part, const char* name) : observer_(observer) {
    if (observer_) observer_->enter(part, name);
  }
  ~Span() {
    if (observer_) observer_->leave();
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  Observer* observer_;
};

}  // namespace moetax
