// Timing something that all ranks do together.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "moetax/base/clock.h"
#include "moetax/base/result.h"
#include "moetax/base/statistics.h"
#include "moetax/transport/collectives.h"

namespace moetax::cli {

// Collective but for time_us().
class Turns {
 public:
  static Result<Turns> create(Communicator& comm, double deadline_s) {
    MOETAX_ASSIGN(Collectives collectives, Collectives::create(comm, Deadline::in_seconds(deadline_s)));
    return Turns(comm.size(), deadline_s, -comm.clock_offset_ns(0), std::move(collectives));
  }

  Result<void> meet() { return collectives_.barrier("calibrate", deadline()); }

  // The same result on all ranks: the median over `turns` of the slowest rank's time, after one turn that does not
  // count. `body` returns Result<double>, its own time in us. All ranks meet before each turn.
  template <class Body>
  Result<double> median_of_slowest(int turns, Body body) {
    std::vector<double> us, all(static_cast<std::size_t>(ranks_));
    for (int turn = -1; turn < turns; ++turn) {
      MOETAX_TRY(meet());
      MOETAX_ASSIGN(const double mine, body());
      MOETAX_TRY(collectives_.all_gather("calibrate times", std::as_bytes(std::span(&mine, 1)),
                                         std::as_writable_bytes(std::span(all)), deadline()));
      if (turn >= 0) us.push_back(*std::max_element(all.begin(), all.end()));
    }
    return median(std::move(us));
  }

  // The same result on all ranks: the median over turns, whose periods every rank gives, of what a turn took from when
  // the last rank began it until the last was done. At most 256 turns.
  Result<double> median_span(std::vector<Period> mine) {
    for (Period& period : mine) {
      period.start_ns += to_rank_0_ns_;
      period.end_ns += to_rank_0_ns_;
    }
    std::vector<Period> all(mine.size() * static_cast<std::size_t>(ranks_)), turn(static_cast<std::size_t>(ranks_));
    MOETAX_TRY(collectives_.all_gather("calibrate times", std::as_bytes(std::span(mine)),
                                       std::as_writable_bytes(std::span(all)), deadline()));
    std::vector<double> us;
    for (std::size_t i = 0; i < mine.size(); ++i) {
      for (std::size_t r = 0; r < turn.size(); ++r) turn[r] = all[r * mine.size() + i];
      us.push_back(span_us(turn));
    }
    return median(std::move(us));
  }

 private:
  Turns(int ranks, double deadline_s, std::int64_t to_rank_0_ns, Collectives collectives)
      : ranks_(ranks), deadline_s_(deadline_s), to_rank_0_ns_(to_rank_0_ns), collectives_(std::move(collectives)) {}
  Deadline deadline() const { return Deadline::in_seconds(deadline_s_); }

  int ranks_;
  double deadline_s_;
  std::int64_t to_rank_0_ns_;  // added to a time of this rank's clock
  Collectives collectives_;
};

// How long `act`, which returns Result<void>, takes this rank.
template <class Act>
Result<double> time_us(Act act) {
  const std::int64_t start = now_ns();
  MOETAX_TRY(act());
  return static_cast<double>(now_ns() - start) * 1e-3;
}

}  // namespace moetax::cli
