// The command line of `moetax bench`, checked and resolved into what the ranks need.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/launched.h"
#include "cli/request_queue.h"
#include "moetax/base/result.h"
#include "moetax/cost/exchange_policy.h"
#include "moetax/layer/moe_layer.h"
#include "moetax/model/shape.h"

namespace moetax::cli {

// Levels of load, see run_stress().
struct StressOptions {
  std::vector<RequestShape> shapes;
  std::vector<int> concurrency;
  std::vector<double> rate;              // requests per second, all ranks together
  std::optional<std::int64_t> requests;  // of each level
  bool replicas = false;                 // the same again with replicas that exchange nothing

  bool wanted() const { return !concurrency.empty() || !rate.empty(); }
};

struct BenchOptions {
  ModelShape model;
  int ranks = 2;
  int ep_size = 0;                   // ranks per replica; 0: all
  std::vector<std::int64_t> tokens;  // one per rank
  DType dtype = DType::kBf16;
  bool backward = false;
  Activations activations = Activations::kKeep;
  int layers = 1;
  int steps = 10;
  int warmup = 2;
  std::uint64_t seed = 1;
  int threads = 1;  // per rank; 0: of a launched job, as many as its part of the node's cores, see settle()
  int nodes = 1;    // that the ranks are on, or are treated as if they were (--nodes)
  std::optional<int> nodes_by_decree;
  ExchangeAlgorithm exchange = ExchangeAlgorithm::kFlat;  // to begin with, if it is chosen while running
  bool auto_exchange = false;
  bool fp32_sums = false;
  int overlap = 1;               // parts of a batch whose exchange and experts run beside each other
  ExchangePolicyOptions policy;  // of the choice
  bool decompose = false;
  std::string costs_path;  // of machine.json, may be empty
  StressOptions stress;
  std::string routing = "router";
  std::vector<double> delay_ms;  // one per rank, 0: none
  double deadline_s = 30;
  std::string json_path, trace_path, record_routing_path;
  std::string fail_on;  // "tax>25%" or empty

  std::int64_t first_token(Rank rank) const;  // global index of the rank's first token
  std::int64_t total_tokens() const;
  // Of this node: its ranks, and whether the launcher gave each cores of its own.
  std::vector<Rank> here;
  bool bound_by_launcher = false;
  std::vector<std::string> hosts;  // by node, of a launched job

  int ranks_per_node() const { return (ranks + nodes - 1) / nodes; }
  LayerConfig layer_config() const;
  // Of one rank; `replica_ranks` is the ep_size.
  ExpertParallelOptions parallel_options(Rank rank, Observer* observer, int replica_ranks) const;
  int exchanges_per_step() const;  // of one rank, at most
  int recorded_steps() const;      // a longer run's later steps are not on the bill, which says so
};

// kUsage: options that contradict each other, with both named. When the user asked for help it was printed and the
// result holds nothing. Under a launcher the job has its size, and only rank 0 prints.
Result<std::optional<BenchOptions>> parse_bench_options(int argc, char** argv, int cores,
                                                        const std::optional<LaunchedRank>& launched = std::nullopt);

}  // namespace moetax::cli
