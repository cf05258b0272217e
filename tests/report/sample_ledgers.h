// Ledgers of a small simulated layer, in whole nanoseconds, so that every number of the bill can be told beforehand.
//
// A step is: router (compute) - dispatch - experts (compute) - combine. An exchange is launch, pack, an idle wait until
// the last rank has come, and wire. Ranks start the first step together; there is no barrier between steps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "moetax/report/bill.h"

namespace moetax::sample {

inline constexpr std::int64_t kUs = 1000;

// What one rank does in every step.
struct RankPlan {
  std::int64_t router_ns = 100 * kUs;
  std::int64_t planted_ns = 0;  // after the router
  std::int64_t asleep_ns = 0;   // off the CPU during the experts
  std::int64_t experts_ns = 2000 * kUs;
  std::int64_t other_ns = 10 * kUs;                                          // after the combine
  std::int64_t launch_ns = 5 * kUs, pack_ns = 20 * kUs, wire_ns = 40 * kUs;  // of each exchange
  std::vector<std::int64_t> expert_tokens;
  std::int64_t clock_offset_ns = 0;
};

enum Name : std::int32_t { kDispatch, kCombine, kForward, kAllToAll, kRouter, kExperts, kPlantedName };

class Simulation {
 public:
  explicit Simulation(std::vector<RankPlan> plans) : plans_(std::move(plans)), now_(plans_.size(), 1'000'000) {
    for (std::size_t r = 0; r < plans_.size(); ++r) {
      RankLedger ledger;
      ledger.rank = static_cast<Rank>(r);
      ledger.clock_offset_ns = plans_[r].clock_offset_ns;
      ledger.names = {"dispatch", "combine", "forward", "all-to-all", "router", "experts", kPlantedDelay};
      ledger.expert_tokens = {plans_[r].expert_tokens};
      ledger.pinning = "core " + std::to_string(r);
      ledger.weight_bytes = 1 << 30;
      ledger.rows_reserved_bytes = 64 << 20;
      ledger.rows_touched_bytes = 16 << 20;
      ledger.flops = 1e9;
      ledgers_.push_back(ledger);
    }
    steps_.resize(plans_.size());
    approaches_.resize(plans_.size());
  }

  std::vector<RankLedger> run(int steps) {
    for (int step = 0; step < steps; ++step) one_step(step);
    return ledgers_;
  }

 private:
  std::int64_t local(std::size_t r, std::int64_t t) const { return t - plans_[r].clock_offset_ns; }

  void spend(std::size_t r, Part part, std::int64_t ns, Name name) {
    steps_[r].part_ns[static_cast<std::size_t>(part)] += ns;
    approaches_[r].part_ns[static_cast<std::size_t>(part)] += ns;
    if (ns > 0) ledgers_[r].spans.push_back({name, part, local(r, now_[r]), local(r, now_[r] + ns)});
    now_[r] += ns;
  }

  void one_step(int step) {
    for (std::size_t r = 0; r < plans_.size(); ++r) {
      steps_[r] = {};
      steps_[r].start_ns = local(r, now_[r]);
      approaches_[r] = {};
      approaches_[r].start_ns = local(r, now_[r]);
      spend(r, Part::kCompute, plans_[r].router_ns, kRouter);
      spend(r, Part::kOther, plans_[r].planted_ns, kPlantedName);
      approaches_[r].planted_ns = plans_[r].planted_ns;
    }
    exchange(step, kDispatch);
    for (std::size_t r = 0; r < plans_.size(); ++r) {
      spend(r, Part::kCompute, plans_[r].experts_ns + plans_[r].asleep_ns, kExperts);
      approaches_[r].off_cpu_ns = plans_[r].asleep_ns;
    }
    exchange(step, kCombine);
    for (std::size_t r = 0; r < plans_.size(); ++r) {
      now_[r] += plans_[r].other_ns;
      steps_[r].part_ns[static_cast<std::size_t>(Part::kOther)] += plans_[r].other_ns;
      steps_[r].end_ns = local(r, now_[r]);
      ledgers_[r].steps.push_back(steps_[r]);
    }
  }

  void exchange(int step, Name name) {
    const auto start = now_;
    const auto approach = approaches_;
    for (std::size_t r = 0; r < plans_.size(); ++r) {
      approaches_[r] = {};
      spend(r, Part::kLaunch, plans_[r].launch_ns, name);
      spend(r, Part::kPack, plans_[r].pack_ns, name);
    }
    const auto last = std::max_element(now_.begin(), now_.end());
    const auto last_rank = static_cast<Rank>(last - now_.begin());
    const std::int64_t all_there = *last;
    ++number_;
    for (std::size_t r = 0; r < plans_.size(); ++r) {
      RankLedger& ledger = ledgers_[r];
      const std::int64_t idle = all_there - now_[r];
      if (idle > 0) {
        ledger.waits.push_back({step, static_cast<std::int32_t>(ledger.exchanges.size()), last_rank, local(r, now_[r]),
                                local(r, all_there), idle, 0});
      }
      spend(r, Part::kWait, idle, name);
      spend(r, Part::kWire, plans_[r].wire_ns, name);
      LedgerExchange x;
      x.name = name;
      x.phase = kForward;
      x.family = kAllToAll;
      x.step = step;
      x.number = number_;
      x.start_ns = local(r, start[r]);
      x.end_ns = local(r, now_[r]);
      x.logical_bytes = 3 << 20;
      x.physical_bytes = 1 << 20;
      x.wait_ns = idle;
      x.transfer_ns = plans_[r].wire_ns;
      x.last_rank = last_rank;
      x.part_ns = approaches_[r].part_ns;
      x.approach = approach[r];
      ledger.exchanges.push_back(x);
      approaches_[r] = {};
      approaches_[r].start_ns = local(r, now_[r]);
    }
  }

  std::vector<RankPlan> plans_;
  std::vector<std::int64_t> now_;
  std::vector<RankLedger> ledgers_;
  std::vector<StepRecord> steps_;
  std::vector<Approach> approaches_;
  std::uint64_t number_ = 0;
};

// A bill of these ledgers on a made-up machine, filled and explained.
inline Bill bill_of(const std::vector<RankLedger>& ledgers, int experts = 8) {
  Bill bill;
  bill.tool_version = "0.0.0";
  bill.machine.cpu = "Example 9000 Processor";
  bill.machine.isa = "avx512-bf16";
  bill.machine.cores = 64;
  bill.machine.memory_bytes = std::size_t{24} << 30;
  bill.machine.kernel = "Linux 6.1";
  bill.machine.huge_pages = "private: THP madvise; shared: 4 KiB";
  bill.gemm = "oneDNN 2.6, bf16 native";
  bill.config.model = "example";
  bill.config.ranks = static_cast<int>(ledgers.size());
  bill.config.deadline_s = 30;
  bill.config.tokens_per_rank.assign(ledgers.size(), 512);
  bill.config.hidden = 2048;
  bill.config.inter = 1408;
  bill.config.experts = experts;
  bill.config.topk = 2;
  bill.config.transport = "local-processes";
  bill.config.warmup = 2;
  bill.config.steps = ledgers.empty() ? 0 : static_cast<int>(ledgers.front().steps.size());
  const int ranks = std::max(static_cast<int>(ledgers.size()), 1);
  bill.config.ep_size = ranks;
  for (int r = 0; r < ranks && !ledgers.empty(); ++r) {
    bill.config.experts_per_rank.push_back(experts / ranks + (r < experts % ranks ? 1 : 0));
  }
  bill.output_hash = "00f1e2d3c4b5a697";
  fill_bill(ledgers, bill);
  explain(bill);
  return bill;
}

inline std::vector<RankPlan> even_plans(std::size_t ranks, int experts = 8) {
  RankPlan plan;
  plan.expert_tokens.assign(static_cast<std::size_t>(experts), 128);
  return std::vector<RankPlan>(ranks, plan);
}

// Rank 1 sleeps 5 ms before its dispatch; its clock runs 3 ms behind rank 0's.
inline Bill planted_bill() {
  auto plans = even_plans(2);
  plans[1].planted_ns = 5000 * kUs;
  plans[1].clock_offset_ns = 3000 * kUs;
  Bill bill = bill_of(Simulation(plans).run(4));
  bill.config.delays = {{1, 5}};
  return bill;
}

// Experts 2 and 3, both on rank 1 of 4, are hot, and its experts take as much longer.
inline Bill hot_bill() {
  auto plans = even_plans(4);
  for (RankPlan& plan : plans) plan.expert_tokens = {100, 100, 300, 500, 100, 100, 100, 0};
  for (std::size_t r = 0; r < plans.size(); ++r) {
    static constexpr std::int64_t kRows[] = {200, 800, 200, 100};
    plans[r].experts_ns = kRows[r] * 10 * kUs;
  }
  return bill_of(Simulation(plans).run(4));
}

// 64 ranks; rank 17 is descheduled for 3 ms in every step.
inline Bill wide_bill() {
  auto plans = even_plans(64, 128);
  plans[17].asleep_ns = 3000 * kUs;
  return bill_of(Simulation(plans).run(2), 128);
}

// Two ranks, much wire, nobody waits.
inline Bill wire_bill() {
  auto plans = even_plans(2);
  for (RankPlan& plan : plans) plan.wire_ns = 900 * kUs;
  return bill_of(Simulation(plans).run(3));
}

inline Bill one_rank_bill() {
  auto plans = even_plans(1);
  plans[0].launch_ns = plans[0].pack_ns = plans[0].wire_ns = 1 * kUs;
  return bill_of(Simulation(plans).run(3));
}

inline Bill no_steps_bill() {
  return bill_of(Simulation(even_plans(2)).run(0));
}

}  // namespace moetax::sample
