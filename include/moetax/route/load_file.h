// Expert loads and routes that come from a file instead of a router.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "moetax/base/result.h"
#include "moetax/route/routing_table.h"

namespace moetax {

// How often each expert of one layer was chosen. counts[e] >= 0, size = experts.
struct ExpertCounts {
  int layer = 0;
  std::vector<double> counts;
};

// Reads "layer_id,expert_id,count" CSV (header optional, any order, missing experts count zero, duplicate rows add up,
// "# comment" and blank lines skipped). Layers come back sorted, each with `experts` counts. Errors (kBadInput) name
// file and line: an expert >= experts, a negative or non-numeric field, no rows. Experts that the file never names
// beyond its largest id are an error when the file's largest id + 1 < experts is off by more than missing rows can
// explain: no layer reaches `experts` - see the message in the implementation.
Result<std::vector<ExpertCounts>> read_expert_counts(const std::string& path, int experts);

// Picks the layer: the one asked for, or the only one; else kBadInput listing the layers there are.
Result<ExpertCounts> pick_layer(const std::vector<ExpertCounts>& layers, std::optional<int> layer,
                                const std::string& path);

// A recorded route: expert ids (and weights where the file has them) per token, top-k order.
// Text, one token a line: K expert ids, then optionally an empty field and K weights, tab separated.
// replay_routing fills `out` for global tokens [first, first + count), wrapping around at the end of the file.
class RoutingTrace {
 public:
  // kBadInput with file:line for ragged lines, ids outside [0, experts), repeated ids in a token, K != topk.
  static Result<RoutingTrace> read(const std::string& path, int experts, int topk);
  std::int64_t tokens() const { return static_cast<std::int64_t>(expert_.size()) / topk_; }
  void fill(std::int64_t first, std::int64_t count, RoutingTable& out) const;

 private:
  int topk_ = 1;
  std::vector<std::int32_t> expert_;
  std::vector<float> weight_;
};

// Appends `table` to `path` in the format RoutingTrace reads, with weights in a form that reads back to the same bits.
Result<void> append_routing(const std::string& path, const RoutingTable& table);

// Draws K distinct experts per token with inclusion probability proportional to `counts` where possible (counts above
// total / K are capped at certainty), by systematic sampling over a per-token random order: token t's choice depends
// on (seed, t) only. Weights are 1 / K. Global tokens [first, first + count). Uniform and Zipf loads are count vectors.
void sample_routing(const std::vector<double>& counts, int topk, std::uint64_t seed, std::int64_t first,
                    std::int64_t count, RoutingTable& out);

// counts[e] = (e + 1)^-s over a fixed pseudo-random permutation of experts, so that hot experts are spread.
std::vector<double> zipf_counts(int experts, double s, std::uint64_t seed);

}  // namespace moetax
