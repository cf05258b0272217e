// The bill: where a step's time went, who waited for whom and why, and what would cut it. docs/bill.md defines each
// field.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "moetax/base/ids.h"
#include "moetax/base/result.h"
#include "moetax/machine/host.h"
#include "moetax/meter/ledger.h"

namespace moetax {

// The run's settings as the bill prints them. Shapes in elements.
struct BillConfig {
  std::string model;  // preset or file name, may be empty
  int ranks = 1;
  int nodes = 1;
  std::vector<std::int64_t> tokens_per_rank;
  std::int64_t hidden = 0, inter = 0, shared = 0;  // shared: total inner width of shared experts
  int experts = 0, topk = 0;
  std::vector<int> experts_per_rank;
  std::string dtype = "bf16";
  std::string wire_dispatch = "bf16", wire_combine = "bf16";
  std::string mode = "throughput";
  std::string exchange = "direct";
  std::string transport;
  std::string overlap = "none";
  std::string routing = "router";
  bool backward = false;
  int layers = 1;
  int threads = 1;  // per rank
  int steps = 0, warmup = 0;
  std::uint64_t seed = 0;
};

struct BillStats {
  double mean = 0, std = 0, p50 = 0, p95 = 0, p99 = 0, min = 0, max = 0;
  std::int64_t count = 0;
};

// A null optional is "cannot be known from this input"; texts say why.
struct BillTax {
  double share = 0, us = 0;
  std::optional<double> pack_us, wire_us, wait_us, launch_us;
};

// Why `rank` was late when this rank waited for it, per step.
struct BillWaitedFor {
  Rank rank = kNoRank;
  double us = 0;  // this rank's waiting for it
  std::string
      cause;  // "planted delay", "descheduled", "expert load (3.1x the mean rows: experts 5, 9)", "compute", "unknown"
  double descheduled_us = 0;  // of `us`, while this thread or the peer was off the CPU
};

struct BillRank {
  Rank rank = 0;
  Node node = 0;
  double step_us = 0, compute_us = 0;
  std::optional<double> pack_us, wire_us, wait_us, launch_us;
  double other_us = 0, comm_us = 0, exposed_us = 0, hidden_us = 0;
  std::vector<BillWaitedFor> waited_for;
};

struct BillExchange {
  std::string name, phase, family;
  std::int64_t calls = 0;
  std::int64_t logical_bytes = 0, physical_bytes = 0, internode_bytes = 0;  // per step, all ranks
  double us = 0, std_us = 0;                                                // per call, mean over ranks
  std::optional<double> wait_us, transfer_us;
  Rank last_rank = kNoRank;  // who was last most often
  std::optional<double> gbs, roof_gbs, roof_share;
};

struct BillRouting {
  double entropy_bits = 0, entropy_max_bits = 0;            // of the expert load, mean over layers
  std::vector<std::vector<std::int64_t>> expert_tokens;     // [layers][experts], all ranks
  double expert_max_over_mean = 0, rank_max_over_mean = 0;  // of the worst layer
  std::int64_t experts_never_chosen = 0;
  std::int64_t dropped_tokens = 0;
};

struct BillFinding {
  std::string id, severity, title, cause, evidence, fix;
  std::optional<double> gain_us_estimate;
};

struct Bill {
  std::string tool_version;
  HostInfo machine;
  std::string pinning, gemm, mpi;  // one line each
  BillConfig config;
  BillStats step_us;
  BillTax tax;
  double comm_us = 0, exposed_us = 0, hidden_us = 0, compute_us = 0, other_us = 0;
  std::optional<double> gflops;  // reached, all ranks
  std::vector<BillRank> ranks;
  std::vector<BillExchange> exchanges;
  BillRouting routing;
  std::int64_t rows_reserved_bytes = 0, rows_touched_bytes = 0, weight_bytes = 0;  // all ranks
  std::string output_hash;
  std::vector<BillFinding> findings;
};

// Builds the bill from every rank's ledger (index = rank). `bill` comes with machine, config and hash filled in; the
// rest is computed. No NaN is ever produced: with no steps the numbers are zero and a finding says so.
void fill_bill(const std::vector<RankLedger>& ledgers, Bill& bill);

// The findings of a filled bill: the one bottleneck first, each with an estimate a measured run can confirm.
void explain(Bill& bill);

std::string to_text(const Bill& bill);  // for people, at most 100 columns
std::string to_json(const Bill& bill);  // moetax.bill/1, see schema/bill.schema.json

// A Chrome/Perfetto trace of the kept spans: one process per rank, aligned clocks.
std::string to_chrome_trace(const std::vector<RankLedger>& ledgers);

// Writes text to a file, or to standard output when path is "-".
Result<void> write_text(const std::string& path, const std::string& text);

}  // namespace moetax
