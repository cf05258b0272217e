// The command line of `moetax bench`, checked and resolved into what the ranks need.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "moetax/base/result.h"
#include "moetax/layer/moe_layer.h"
#include "moetax/model/shape.h"

namespace moetax::cli {

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
  int threads = 1;  // per rank
  int nodes = 1;    // the ranks are treated as if they were on so many
  ExchangeAlgorithm exchange = ExchangeAlgorithm::kFlat;
  std::string routing = "router";
  std::vector<double> delay_ms;  // one per rank, 0: none
  double deadline_s = 30;
  std::string json_path, trace_path, record_routing_path;
  std::string fail_on;  // "tax>25%" or empty

  std::int64_t first_token(Rank rank) const;  // global index of the rank's first token
  std::int64_t total_tokens() const;
  int ranks_per_node() const { return (ranks + nodes - 1) / nodes; }
  LayerConfig layer_config() const;
  int exchanges_per_step() const;  // of one rank, at most
  int recorded_steps() const;      // a longer run's later steps are not on the bill, which says so
};

// kUsage: options that contradict each other, with both named. When the user asked for help it was printed and the
// result holds nothing.
Result<std::optional<BenchOptions>> parse_bench_options(int argc, char** argv, int cores);

}  // namespace moetax::cli
