// From logits to experts and weights in one pass, and the gradient back.
//
// Routers of the published models (formulas: DeepSeekMoE arXiv:2401.06066 eq. 4-5, DeepSeek-V2 arXiv:2405.04434
// sec. 2.2.2, DeepSeek-V3 arXiv:2412.19437 eq. 12-16, Mixtral arXiv:2401.04088 sec. 2.1):
//   score  s = softmax(logits) or sigmoid(logits), in fp32
//   choice the K best of s + bias (the bias only picks; weights never see it), among the experts of the
//          `topk_groups` best groups when groups > 1; equal values go to the lower expert
//   weight s of the chosen, divided by their sum when `renormalize`, times `scale`
#pragma once

#include <cstdint>
#include <span>

#include "moetax/base/matrix.h"
#include "moetax/base/result.h"
#include "moetax/route/routing_table.h"

namespace moetax {

enum class Score : std::uint8_t { kSoftmax, kSigmoid };
enum class GroupScore : std::uint8_t {
  kMax,
  kTopTwoSum
};  // V2: best of the group; V3: sum of its two best biased scores

struct RouterConfig {
  int experts = 0;
  int topk = 0;
  Score score = Score::kSoftmax;
  bool renormalize = false;
  float scale = 1.0f;
  int groups = 1;       // equal, contiguous groups of experts
  int topk_groups = 1;  // groups a token may use
  GroupScore group_score = GroupScore::kMax;
};

inline constexpr int kMaxTopK = 32;
inline constexpr int kMaxExperts = 4096;
inline constexpr int kMaxGroups = 64;

// kUsage with one line that names the field: topk > experts, groups that do not divide experts, topk_groups * experts
// per group < topk, kTopTwoSum over groups of one expert, sizes out of range, a scale that is not finite.
Result<void> validate(const RouterConfig& config);

// Routes T tokens. logits [T, E] fp32; bias [E] fp32 or empty; out is resized to [T, K].
// Where neither a bias nor kTopTwoSum asks for the scores themselves, experts are compared by their logits: softmax and
// sigmoid keep the order, and logits do not round together. Weights are within 2e-6 of the exact ones, relatively (or
// within scale times the smallest normal number).
// NaN or infinite logits: kBadInput naming the first such token (its index plus first_token) and expert; `out` is then
// unspecified. kUsage where config, logits and bias disagree; kBadInput for a bias that is not finite.
// Uses up to `threads` threads; a token's result depends neither on their number nor on the tokens beside it. Allocates
// only when `out` grows.
Result<void> route(const RouterConfig& config, MatrixView<const float> logits, std::span<const float> bias, int threads,
                   RoutingTable& out, std::int64_t first_token = 0);

// The same result, token by token, from the formulas above in double precision: slow, readable, the oracle of tests.
// Where scores differ by less than fp32 rounds, the two may choose differently.
Result<void> route_reference(const RouterConfig& config, MatrixView<const float> logits, std::span<const float> bias,
                             RoutingTable& out, std::int64_t first_token = 0);

// d_logits [T, E] from d_weight [T, K]: the gradient of the chosen weights; the choice itself has none. `table` is the
// forward's (never re-routed); only its experts are read. d_logits is overwritten, zeros included, and must not overlap
// the inputs. Shapes must agree and logits be finite (route() has checked them). Allocates nothing.
void route_backward(const RouterConfig& config, MatrixView<const float> logits, const RoutingTable& table,
                    MatrixView<const float> d_weight, int threads, MatrixView<float> d_logits);

// The instruction set the kernels were dispatched to on this machine ("AVX3" is AVX-512, "AVX2", "SSE4", ...).
const char* route_isa();

}  // namespace moetax
