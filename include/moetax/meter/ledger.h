// What one rank did and when: the observer that the rooms report to, one per rank.
//
//   Ledger ledger(rank, steps, exchanges_per_step, spans);
//   for (...) { ledger.begin_step(); layer.forward(...); ledger.end_step(); }   // the layer holds &ledger as observer
//   auto bytes = ledger.record().to_bytes();                                    // to rank 0, for the bill
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "moetax/base/observer.h"
#include "moetax/base/result.h"

namespace moetax {

using PartTimes = std::array<std::int64_t, kNumParts>;  // ns, indexed by Part

struct StepRecord {
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
  PartTimes part_ns{};         // sums to end - start exactly
  std::int64_t hidden_ns = 0;  // of exchanges, beside compute; not part of part_ns
};

// A closed span, for the timeline. `name` indexes RankLedger::names.
struct SpanRecord {
  std::int32_t name = 0;
  Part part = Part::kOther;
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
};

// How a rank came to an exchange: what it did between the end of its previous exchange (or the step's start) and its
// arrival. This is what explains the waits of the others.
struct Approach {
  std::int64_t start_ns = 0;  // end of the previous exchange, or the step's start
  PartTimes part_ns{};
  // Wall time minus CPU time of the rank's thread since its previous arrival (or the step's start), without planted
  // delays and idle waits; at least, as a wait also spins. Read at most every 200 us: the clock is a system call. A
  // thread that spins in its team's barrier is on the CPU; one that sleeps there counts as off it.
  std::int64_t off_cpu_ns = 0;
  std::int64_t planted_ns = 0;  // inside spans named kPlantedDelay
};
inline constexpr const char* kPlantedDelay = "planted delay";

struct LedgerExchange {
  std::int32_t name = 0, phase = 0, family = 0;  // index names
  std::int32_t step = 0;                         // index into RankLedger::steps
  std::uint64_t number = 0;
  std::int64_t start_ns = 0, end_ns = 0;
  std::int64_t logical_bytes = 0, physical_bytes = 0, internode_bytes = 0;
  std::int64_t wait_ns = 0, transfer_ns = 0;
  Rank last_rank = kNoRank;
  PartTimes part_ns{};          // from arrival to end
  std::int64_t off_cpu_ns = 0;  // involuntarily off the CPU while it spun for a peer
  Approach approach;
};

struct LedgerWait {
  std::int32_t step = 0;
  std::int32_t exchange = -1;  // index into RankLedger::exchanges, -1: outside any
  Rank peer = kNoRank;
  std::int64_t start_ns = 0, end_ns = 0;
  std::int64_t idle_ns = 0;  // end - start, and that of later waits for the same peer where one exchange had many
  std::int64_t off_cpu_ns = 0;
};

// What flowed from one rank in all measured steps, see FlowRecord.
struct LedgerFlow {
  Rank peer = kNoRank;
  std::int64_t bytes = 0, ns = 0;
};

// Everything a rank hands in at the end. Plain data; travels as bytes.
struct RankLedger {
  Rank rank = 0;
  Node node = 0;
  std::int64_t clock_offset_ns = 0;  // add to this rank's times to get rank 0's clock
  std::vector<std::string> names;
  std::vector<StepRecord> steps;  // measured steps only
  std::vector<LedgerExchange> exchanges;
  std::vector<LedgerWait> waits;
  std::vector<LedgerFlow> flows;     // by peer
  std::vector<SpanRecord> spans;     // the first ones of the measured steps, as many as there was room for
  std::int64_t spans_dropped = 0;    // the later ones: missing from the timeline, never from the bill
  std::int64_t records_dropped = 0;  // steps, exchanges or waits beyond the room reserved: the bill misses them
  // Filled in by the caller:
  std::vector<std::vector<std::int64_t>>
      expert_tokens;  // [layers][experts] this rank's (token, expert) choices, last step
  std::string pinning;
  std::int64_t rows_reserved_bytes = 0, rows_touched_bytes = 0, weight_bytes = 0;
  double flops = 0;  // of one step on this rank, forward and backward as run

  std::vector<std::byte> to_bytes() const;
  // kBadInput for bytes that to_bytes() cannot have made, with the offset. What comes back has indices in range, ends
  // not before starts and sizes that can be added up without overflow, whoever sent it. Same byte order on both sides.
  static Result<RankLedger> from_bytes(std::span<const std::byte> bytes);
};

// Records the spans of measured steps into memory reserved and touched at construction; when a buffer is full further
// records are counted as dropped. Nothing is allocated between begin_step and end_step. Outside of them everything is
// ignored. A span costs two clock reads. From the rank's thread only.
//
// The exchange's side: its first span (pack, wire, wait or launch, from outside of these) opens at its arrival,
// ExchangeRecord::start_ns, and exchanged() comes at its end. waited() of an exchange comes before its exchanged().
class Ledger final : public Observer {
 public:
  Ledger(Rank rank, int max_steps, int max_exchanges_per_step, int max_spans);

  void begin_step();
  void end_step();  // closes spans still open (an error left them)

  void enter(Part part, const char* name) override;
  void leave() override;
  void waited(const WaitRecord& wait) override;
  void exchanged(const ExchangeRecord& exchange) override;
  void flowed(const FlowRecord& flow) override;

  // The record, with the caller's additions (expert tokens, sizes) still to be filled in. Between steps only.
  RankLedger& record() { return record_; }

 private:
  static constexpr std::size_t kMaxDepth = 32;    // deeper spans are charged to the one they lie in
  static constexpr std::size_t kMaxNames = 256;   // later names are shown as the first
  static constexpr std::size_t kMaxArrivals = 8;  // entries into exchange parts remembered per exchange
  static constexpr std::size_t kMaxWaits = 8;     // of one exchange kept apart
  static constexpr std::size_t kMaxFlows = 1024;  // peers

  struct Open {
    Part part = Part::kOther;
    bool planted = false;
    const char* name = "";
    std::int64_t start_ns = 0;
  };
  // All running totals of the step at one instant; differences of two are what happened between them.
  struct Moment {
    std::int64_t at_ns = 0, planted_ns = 0, off_cpu_ns = 0;
    PartTimes part_ns{};
  };

  void charge(std::int64_t now);
  void note_arrival(std::int64_t now);
  void read_cpu(std::int64_t now);
  void close_innermost(std::int64_t now);
  void publish_names();
  bool fold_wait(const WaitRecord& wait);
  Moment moment(std::int64_t now) const;
  const Moment& arrival_near(std::int64_t start_ns, const Moment& end) const;
  std::int32_t intern(const char* name);

  RankLedger record_;
  std::vector<const char*> interned_;  // strings are made of them between steps
  std::array<Open, kMaxDepth> open_{};
  std::size_t depth_ = 0, too_deep_ = 0;
  StepRecord step_;
  std::int64_t planted_ns_ = 0, off_cpu_ns_ = 0;
  std::int64_t mark_ns_ = 0;      // up to here time has been charged
  Moment cpu_mark_;               // when the thread's CPU clock was last read, and
  std::int64_t cpu_mark_ns_ = 0;  // what it said
  Moment previous_arrival_;
  Moment previous_end_;  // of the previous exchange, or the step's start
  std::array<Moment, kMaxArrivals> arrivals_{};
  std::size_t num_arrivals_ = 0;
  std::size_t first_wait_ = 0;  // of record_.waits, not yet owned by an exchange
  bool in_step_ = false;
};

}  // namespace moetax
