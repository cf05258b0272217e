// The bill: where a step's time went, who waited for whom and why, and what would cut it. docs/bill.md defines each
// field.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "moetax/analyze/analysis.h"
#include "moetax/base/exchange_algorithm.h"
#include "moetax/base/ids.h"
#include "moetax/base/result.h"
#include "moetax/cost/exchange_cost.h"
#include "moetax/machine/host.h"
#include "moetax/meter/ledger.h"

namespace moetax {

// A sleep that was asked for in every step (--delay).
struct BillDelay {
  Rank rank = 0;
  double ms = 0;
};

// The run's settings as the bill prints them. Shapes in elements.
struct BillConfig {
  std::string model;  // preset or file name, may be empty
  int ranks = 1;
  int nodes = 1;
  std::vector<std::string> hosts;  // by node; empty if all ranks were started on this machine
  std::optional<int> ep_size;      // ranks per replica of the experts; unknown in bills made from traces
  std::vector<std::int64_t> tokens_per_rank;
  std::int64_t hidden = 0, inter = 0, shared = 0;  // shared: total inner width of shared experts
  int experts = 0, topk = 0;
  std::vector<int> experts_per_rank;
  std::string dtype = "bf16";
  std::string wire_dispatch = "bf16", wire_combine = "bf16";
  std::string mode = "throughput";
  std::string exchange = "direct";  // or "auto": see Bill::choices
  std::string costs;                // the file with measured costs that predictions rest on, may be empty
  std::string transport;
  std::string overlap = "none";
  std::string routing = "router";
  bool backward = false;
  bool recompute = false;  // activations, in the backward
  int layers = 1;
  int threads = 1;  // per rank
  int steps = 0, warmup = 0;
  std::uint64_t seed = 0;
  std::vector<BillDelay> delays;
  std::optional<double> deadline_s;  // of each wait
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

// Why a peer came late to an exchange. Derived from how both ranks came to it, see docs/bill.md.
enum class WaitCause : std::uint8_t {
  kPlanted,      // it was told to sleep (--delay)
  kDescheduled,  // its thread, or the waiting one, was off the CPU against its will
  kExpertLoad,   // its experts had more rows
  kCompute,      // it computed longer for the same rows
  kCopying,      // it packed or moved rows for longer
  kLag,          // it left the exchange before, in the same step, later
  kStepLag,      // it began the step later
  kOther,        // it spent longer outside compute and exchanges
  kWakeUp,       // it had come, but the waiting rank noticed later: it slept or had no core
  kUnknown,
};
inline constexpr int kNumWaitCauses = 10;

// Whom a rank waited for, per step, and the cause that explains the most of it.
struct BillWaitedFor {
  Rank rank = kNoRank;
  double us = 0;
  WaitCause cause = WaitCause::kUnknown;
  std::string cause_text;                            // "expert load, 3.10x the mean rows: experts 5, 9"
  std::array<double, kNumWaitCauses> by_cause_us{};  // adds up to us
};

struct BillRank {
  Rank rank = 0;
  Node node = 0;
  double step_us = 0, compute_us = 0;
  std::optional<double> pack_us, wire_us, wait_us, launch_us;
  double other_us = 0, comm_us = 0, exposed_us = 0, hidden_us = 0;
  std::optional<double> expert_rows;      // rows its experts worked on in one step, all layers
  std::vector<BillWaitedFor> waited_for;  // longest first
};

struct BillExchange {
  std::string name, phase, family;
  std::int64_t calls = 0;  // in all measured steps; a call that all ranks take part in counts once
  std::int64_t logical_bytes = 0, physical_bytes = 0, internode_bytes = 0;  // per step, all ranks
  bool bytes_known = true, physical_known = true;                           // traces do not always say
  double us = 0, std_us = 0;                                                // per call, mean over ranks
  std::optional<double> wait_us, transfer_us;
  Rank last_rank = kNoRank;  // who was waited for most often
  // GB/s (1e9) of physical bytes while transferring, mean over ranks; the roof where it is known.
  std::optional<double> gbs, roof_gbs, roof_share;
  // Of a dispatch, combine or mirror, the median over calls: from when all ranks had come until all were done.
  std::optional<double> span_us;
  std::optional<double> predicted_us, prediction_error;  // of span_us: predicted / span - 1; where costs are known
};

// How rows flowed between a node and the others, where streams of messages show it.
struct BillLink {
  Node node = 0;
  double gbs = 0;                  // of one stream from or to it, the median over the other nodes
  bool slow = false;               // the slowest, by far: the streams between all others are more than twice as fast
  std::optional<double> slowdown;  // of its link against the calibration; where slow, and costs are known
};

// What --exchange auto decided, and why.
struct BillChoice {
  int after_steps = 0;   // done before, those to warm up included
  std::string exchange;  // from then on; the one before if no other was better
  std::string why;
};

// One exchange's dispatch or combine of this routing, by terms (bench --decompose).
struct BillDecomposition {
  std::string exchange, name;
  CallCost predicted;
  double span_us = 0;  // measured, the median over calls
};

// Requests that came and went: one level of load (bench --concurrency, --rate, --baseline replicas).
struct BillStress {
  bool replicas = false;                // every rank held all experts and exchanged nothing
  std::int64_t prompt = 0, output = 0;  // tokens of a request
  int concurrency = 0;                  // requests at a time, each followed by the next; 0: they came by `rate`
  double rate = 0;                      // requests per second, of a Poisson process
  BillStats latency_us;                 // of a request, from its arrival
  double tokens_per_s = 0;              // all ranks
  std::int64_t steps = 0;               // of the rank with the most
  double step_us = 0, tax_share = 0;    // mean over steps and ranks
};

struct BillRouting {
  double entropy_bits = 0, entropy_max_bits = 0;         // of the expert load, mean over layers
  std::vector<std::vector<std::int64_t>> expert_tokens;  // [layers][experts], all ranks
  double expert_max_over_mean = 0;                       // of the worst layer, 0: no tokens
  std::optional<double> rank_max_over_mean;              // the same; unknown when the placement is
  std::int64_t experts_never_chosen = 0;                 // (layer, expert) pairs
  std::int64_t dropped_tokens = 0;
};

// One thing worth knowing. Ids are stable and documented in docs/bill.md.
struct BillFinding {
  std::string id;
  std::string severity;  // "error", "warning" or "note"
  std::string title, cause, evidence, fix;
  std::optional<double> gain_us_estimate;  // of a step, at most; absent where the bill has no bound
};

// A file that a bill was made from.
struct BillSource {
  std::string file, kind;  // kind: "pytorch-trace"; empty where it could not be told
  Rank rank = kNoRank;
  std::int64_t used = 0, skipped = 0;  // events; of the skipped ones none is in the bill
  std::string why = {};                // something was skipped, one line
};

// Communication kernels of one operation, in a bill made from traces.
struct BillTraceOperation {
  std::string family, operation, phase;
  bool sync_only = false;  // moves no tokens
  std::int64_t kernels = 0;
  double us = 0, exposed_us = 0;  // sums over kernels, mean over devices
  double share = 0;               // of the time of all communication kernels
  // Of calls matched across ranks: the shortest rank's time in each, summed up, beside the rank that spent the most.
  std::optional<double> shortest_us, longest_us;
  Rank longest_rank = kNoRank;
};

struct BillTraceDevice {
  Rank rank = kNoRank;
  int device = 0;
  double copy_us = 0, idle_us = 0, sync_us = 0;
  std::optional<double> idle_host_us, clock_offset_us;
};

struct BillTraceName {
  std::string name;
  std::int64_t kernels = 0;
  double us = 0;
};

// What a bill made from traces says beside the rest. Its step is the window: from the first to the last work on a
// device.
struct BillTrace {
  std::vector<std::string> models;  // of the devices
  std::vector<BillTraceDevice> devices;
  std::vector<BillTraceOperation> operations;
  std::vector<BillTraceName> unknown;  // look like communication, are counted as compute
  BillStats steps_us;                  // the steps that annotations mark on the host
  std::optional<double> residual_us;   // of the clocks' alignment
  std::int64_t matched = 0, unmatched = 0;
  std::vector<std::string> notes;  // what is missing and why, a sentence each
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
  std::vector<BillLink> links;  // by node
  std::vector<BillChoice> choices;
  std::vector<BillDecomposition> decomposition;
  std::vector<BillStress> stress;
  BillRouting routing;
  std::int64_t rows_reserved_bytes = 0, rows_touched_bytes = 0, weight_bytes = 0;  // all ranks
  std::int64_t records_dropped = 0;  // exchanges and waits not in the bill
  std::string output_hash;
  std::vector<BillFinding> findings;
  std::vector<BillSource> sources;  // of bills made from files
  std::optional<BillTrace> trace;   // of bills made from traces
};

// All zero without samples. Quantiles are samples, by nearest rank; std is that of a sample.
BillStats stats_of(std::vector<double> samples);

// Builds the bill from every rank's ledger (index = rank). `bill` comes with tool_version, machine, gemm, mpi, config
// and hash filled in; the rest is computed. Steps that not all ranks measured are left out. No NaN is ever produced:
// with no steps the numbers are zero and a finding says so.
void fill_bill(const std::vector<RankLedger>& ledgers, Bill& bill);

// In how many measured steps an exchange carried the rows.
struct ExchangeUse {
  ExchangeAlgorithm algorithm = ExchangeAlgorithm::kFlat;
  int steps = 0;
};

// Predictions and roofs of the exchanges of a filled bill, and the slowdown of a slow link. `layers` is the traffic of
// each layer, `uses` (at least one, with a step) who carried it. As measured times are medians over calls, predicted
// ones are medians over steps. A roof is what the links of a rank carry of its physical bytes: where a share of them
// crosses between nodes, the link's rate over that share (uniform traffic of n ranks, g per node: link (n-1) / (n-g)),
// else the rate of memory.
void add_predictions(const MachineCosts& machine, std::span<const Traffic> layers, std::span<const ExchangeUse> uses,
                     double row_bytes, Bill& bill);

// The findings of a filled bill: the one bottleneck first, the others by their estimated gain. Replaces earlier ones.
void explain(Bill& bill);

// The bill of a job's traces. `analysis` is what analyze() found in `traces`; tool_version and sources are left to the
// caller.
Bill bill_of_traces(const std::vector<GpuTrace>& traces, const Analysis& analysis);

std::string to_text(const Bill& bill);  // for people, at most 100 columns
std::string to_json(
    const Bill& bill);  // moetax.bill/1, see schema/bill.schema.json; text that is not UTF-8 is repaired

// A Chrome/Perfetto trace of the kept spans: one process per rank, aligned clocks.
std::string to_chrome_trace(const std::vector<RankLedger>& ledgers);

// The same of traces: kernels and copies of all devices, by stream, on the first one's clock.
std::string to_chrome_trace(const std::vector<GpuTrace>& traces, const Analysis& analysis, const KernelRules& rules);

// Writes text to a file, or to standard output when path is "-". Errors name the path and why: kUsage when it cannot be
// opened, kUnavailable when the text cannot be written.
Result<void> write_text(const std::string& path, const std::string& text);

}  // namespace moetax
