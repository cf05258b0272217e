// Expert loads and routes that come from a file or a distribution instead of a router.
//
// Two kinds of text file. Counts: how often each expert was chosen, per layer. Routes: which experts each token chose.
// Errors of the readers are kBadInput, start with "file:line: " and say what was expected.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "moetax/base/result.h"
#include "moetax/route/routing_table.h"

namespace moetax {

// How often each expert of one layer was chosen. counts[e] >= 0, size = experts.
struct ExpertCounts {
  int layer = 0;
  std::vector<double> counts;
};

// Reads CSV lines "layer_id,expert_id,count" for a model with `experts` experts. A header line may name the three
// columns in another order. Rows come in any order, experts without a row count zero, rows of the same layer and expert
// add up: the files of several ranks may simply be concatenated, headers and all. Blank lines and "# comments" are
// skipped. The layers come back sorted, each with `experts` counts, at least one of them positive.
// Errors: a field that is missing, not a number or negative; an expert id >= experts; no rows; a layer whose counts are
// all zero; routes instead of counts. A file of a smaller model shows only in what is missing, and is refused when its
// largest id over all layers, N - 1, is below experts - 1 and more than a quarter of the experts are never named:
// "holds N experts, the model has M".
Result<std::vector<ExpertCounts>> read_expert_counts(const std::string& path, int experts);
// The same from text already read; `origin` stands for the file's name in messages.
Result<std::vector<ExpertCounts>> parse_expert_counts(std::string_view text, const std::string& origin, int experts);

// How often each expert was chosen, from counts as above or from routes: lines "layer_id,expert_ids" with ids parted by
// blanks, or ids parted by tabs up to an empty field (layer 0). Whatever the model: there are as many experts as the
// largest id tells. What is no row is left out. By layer, all of one size; empty: the text is neither.
std::vector<ExpertCounts> count_expert_load(std::string_view text);

// The layer asked for, or the only one; else kBadInput that lists the layers there are. `layers` as the readers return
// it.
Result<ExpertCounts> pick_layer(const std::vector<ExpertCounts>& layers, std::optional<int> layer,
                                const std::string& path);

// Recorded routes: K expert ids per token, with weights where the file has them. Immutable once read.
//
// A line holds the ids of one token, or of several one after another (a recorded sequence), separated by tabs; then,
// optionally, an empty field and as many weights in the same order. A tab may end the line, blank lines are skipped.
// For two tokens with K = 2:  "5 <tab> 0 <tab> 3 <tab> 7 <tab> <tab> 0.5 <tab> 0.25 <tab> 0.75 <tab> 0.125".
class RoutingTrace {
 public:
  // Errors: ids outside [0, experts), an id twice in a token, a number of ids that K does not divide, another number of
  // weights than ids, weights on some lines only, weights that are not finite numbers, no tokens; and lines that all
  // hold the same number of ids, other than K but small enough to be the K of another model.
  static Result<RoutingTrace> read(const std::string& path, int experts, int topk);
  static Result<RoutingTrace> parse(std::string_view text, const std::string& origin, int experts, int topk);

  std::int64_t tokens() const { return static_cast<std::int64_t>(expert_.size()) / topk_; }
  // Global tokens [first, first + count), wrapping around at the end of the file. Weights are 1 / K without any in it.
  void fill(std::int64_t first, std::int64_t count, RoutingTable& out) const;

 private:
  int topk_ = 1;
  std::vector<std::int32_t> expert_;  // [tokens, K]
  std::vector<float> weight_;         // [tokens, K] or empty
};

// Appends `table` to `path`, one token a line, in the format RoutingTrace reads; weights read back to the same bits.
// kBadInput naming the path when it cannot be written.
Result<void> append_routing(const std::string& path, const RoutingTable& table);

// Draws `topk` distinct experts for each of the global tokens [first, first + count). Expert e is among them with
// probability K counts[e] / total; where that exceeds one, e is certain and the others share the rest in proportion.
// Experts with count zero come only when fewer than K have another, all equally often. The draw is systematic sampling
// over a random order of the experts, made for each token from (seed, token) alone. Ids ascend; weights are 1 / K.
// 1 <= topk <= counts.size() <= kMaxExperts, counts finite and >= 0. A uniform load is a vector of equal counts.
void sample_routing(const std::vector<double>& counts, int topk, std::uint64_t seed, std::int64_t first,
                    std::int64_t count, RoutingTable& out);

// A Zipf load: the i-th hottest expert gets (i + 1)^-s. Which experts are hot is a permutation drawn from `seed`.
std::vector<double> zipf_counts(int experts, double s, std::uint64_t seed);

}  // namespace moetax
