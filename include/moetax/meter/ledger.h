// What one rank did and when: the observer that the rooms report to, one per rank.
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
  std::int64_t hidden_ns = 0;  // transfer that ran under compute; not part of part_ns
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
  PartTimes part_ns{};
  std::int64_t off_cpu_ns = 0;   // wall minus CPU time of the rank's thread, planted delays excluded
  std::int64_t planted_ns = 0;   // inside spans named kPlantedDelay
  std::int64_t expert_rows = 0;  // rows its experts worked on
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
  std::int64_t off_cpu_ns = 0;  // of the waiter while it spun
  Approach approach;
};

struct LedgerWait {
  std::int32_t step = 0;
  Rank peer = kNoRank;
  std::int64_t start_ns = 0, end_ns = 0;
  std::int64_t off_cpu_ns = 0;
};

// Everything a rank hands in at the end. Plain data; travels as bytes.
struct RankLedger {
  Rank rank = 0;
  std::int64_t clock_offset_ns = 0;  // add to this rank's times to get rank 0's clock
  std::vector<std::string> names;
  std::vector<StepRecord> steps;  // measured steps only
  std::vector<LedgerExchange> exchanges;
  std::vector<LedgerWait> waits;
  std::vector<SpanRecord> spans;  // of the last `spans_kept` spans at most
  std::int64_t spans_dropped = 0;
  std::vector<std::vector<std::int64_t>>
      expert_tokens;  // [layers][experts] this rank's (token, expert) choices, last step
  std::string pinning;
  std::int64_t rows_reserved_bytes = 0, rows_touched_bytes = 0, weight_bytes = 0;
  double flops = 0;  // of one step on this rank, forward and backward as run

  std::vector<std::byte> to_bytes() const;
  static Result<RankLedger> from_bytes(std::span<const std::byte> bytes);
};

// Records spans of measured steps into memory reserved at construction; when a buffer is full further spans are counted
// as dropped, never allocated. Outside begin_step/end_step everything is ignored. Used from the rank's thread only.
class Ledger final : public Observer {
 public:
  Ledger(Rank rank, int max_steps, int max_exchanges_per_step, int max_spans);

  void begin_step();
  void end_step();

  void enter(Part part, const char* name) override;
  void leave() override;
  void waited(const WaitRecord& wait) override;
  void exchanged(const ExchangeRecord& exchange) override;

  // The record, with the caller's additions (expert tokens, sizes) still to be filled in.
  RankLedger& record() { return record_; }

 private:
  struct Open {
    Part part;
    const char* name;
    std::int64_t start_ns;
  };
  void charge(std::int64_t now);
  std::int32_t intern(const char* name);

  RankLedger record_;
  std::vector<const char*> interned_;
  std::vector<Open> open_;
  StepRecord step_;
  Approach approach_;
  std::int64_t mark_ns_ = 0;      // up to here time has been charged
  std::int64_t mark_cpu_ns_ = 0;  // thread CPU clock when the current approach began
  std::int64_t approach_start_ns_ = 0;
  bool in_step_ = false;
};

}  // namespace moetax
