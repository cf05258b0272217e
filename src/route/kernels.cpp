// The fused router: kLanes tokens at a time, one token per vector lane, so that every step of the formulas is plain
// vector arithmetic without anything that crosses lanes, and a token's result cannot depend on its neighbours.
#include "route/kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "route/choice.h"

// Arrays of vectors need vectors of a size known at compile time.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "route/kernels.cpp"
#include "hwy/foreach_target.h"
// foreach_target.h comes first.
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace moetax {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using IntTag = hn::RebindToSigned<FloatTag>;
using Floats = hn::Vec<FloatTag>;
using Ints = hn::Vec<IntTag>;
using Mask = hn::Mask<FloatTag>;

constexpr FloatTag f;
constexpr IntTag i;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(f));
constexpr float kLowest = -std::numeric_limits<float>::infinity();

// A block's values lie expert by expert: values[e * kLanes + lane].
HWY_INLINE Floats load(const float* values, int e) {
  return hn::Load(f, values + e * kLanes);
}
HWY_INLINE void store(Floats x, float* values, int e) {
  hn::Store(x, f, values + e * kLanes);
}

// ---- logits into a block -------------------------------------------------------------------------------------------

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE int load_quads(const float* const*, int, float*) {
  return 0;
}
#else
// Transposes four rows, four experts at a time; returns the number of experts done.
HWY_INLINE int load_quads(const float* const* row, int experts, float* values) {
  const hn::FixedTag<float, 4> q;
  int e = 0;
  for (; e + 4 <= experts; e += 4) {
    const auto a = hn::LoadU(q, row[0] + e), b = hn::LoadU(q, row[1] + e);
    const auto c = hn::LoadU(q, row[2] + e), d = hn::LoadU(q, row[3] + e);
    const auto ab_low = hn::InterleaveLower(q, a, b), ab_high = hn::InterleaveUpper(q, a, b);
    const auto cd_low = hn::InterleaveLower(q, c, d), cd_high = hn::InterleaveUpper(q, c, d);
    hn::Store(hn::ConcatLowerLower(q, cd_low, ab_low), q, values + (e + 0) * kLanes);
    hn::Store(hn::ConcatUpperUpper(q, cd_low, ab_low), q, values + (e + 1) * kLanes);
    hn::Store(hn::ConcatLowerLower(q, cd_high, ab_high), q, values + (e + 2) * kLanes);
    hn::Store(hn::ConcatUpperUpper(q, cd_high, ab_high), q, values + (e + 3) * kLanes);
  }
  return e;
}
#endif

// Lanes beyond the last token repeat it.
void load_block(MatrixView<const float> logits, std::int64_t first, int tokens, float* values) {
  const int experts = static_cast<int>(logits.cols);
  const float* row[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) row[lane] = logits.row(first + std::min(lane, tokens - 1));
  constexpr int kQuad = std::min(4, kLanes);
  for (int lane = 0; lane < kLanes; lane += kQuad) {
    for (int e = load_quads(row + lane, experts, values + lane); e < experts; ++e) {
      for (int l = lane; l < lane + kQuad; ++l) values[e * kLanes + l] = row[l][e];
    }
  }
}

bool all_finite(const float* values, int experts) {
  Floats zeros = hn::Zero(f);  // 0 * x is 0, or NaN where x is not finite
  for (int e = 0; e < experts; ++e) zeros = hn::MulAdd(load(values, e), hn::Zero(f), zeros);
  return hn::AllTrue(f, hn::Eq(zeros, zeros));
}

// ---- scores --------------------------------------------------------------------------------------------------------

// What turns logits into softmax weights: exp(x - top) / sum.
struct Softmax {
  Floats top;
  Floats sum;
};

// Sums in short runs: the rounding errors of one long fp32 sum over thousands of experts would show in the weights.
Floats sum_exp(const float* values, int experts, Floats top) {
  constexpr int kRun = 64;
  Floats sum = hn::Zero(f);
  for (int begin = 0; begin < experts; begin += kRun) {
    Floats run = hn::Zero(f);
    for (int e = begin; e < std::min(begin + kRun, experts); ++e) {
      run = hn::Add(run, hn::Exp(f, hn::Sub(load(values, e), top)));
    }
    sum = hn::Add(sum, run);
  }
  return sum;
}

Softmax softmax_over(const float* values, int experts) {
  Floats top = load(values, 0);
  for (int e = 1; e < experts; ++e) top = hn::Max(top, load(values, e));
  return {top, sum_exp(values, experts, top)};
}

// exp(x - top) for x <= top, right to the last bits also where the difference rounds.
HWY_INLINE Floats exp_difference(Floats x, Floats top) {
  const Floats difference = hn::Sub(x, top);
  const Floats minus_top = hn::Sub(difference, x);
  const Floats lost = hn::Sub(hn::Sub(x, hn::Sub(difference, minus_top)), hn::Add(top, minus_top));
  const Floats e = hn::Exp(f, difference);
  // Below exp's range the difference may have overflowed and left no number in `lost`.
  return hn::IfThenElseZero(hn::Gt(difference, hn::Set(f, -104.0f)), hn::MulAdd(e, lost, e));
}

HWY_INLINE Floats sigmoid(Floats x) {
  // exp(87) is finite and its inverse still a normal number.
  const Floats e = hn::Exp(f, hn::Min(hn::Neg(x), hn::Set(f, 87.0f)));
  return hn::Div(hn::Set(f, 1.0f), hn::Add(hn::Set(f, 1.0f), e));
}

// Replaces logits by what the choice compares: score + bias.
void to_choice_values(const RouteJob& job, const Softmax& all, float* values) {
  const bool is_softmax = job.config.score == Score::kSoftmax;
  const Floats inverse_sum = hn::Div(hn::Set(f, 1.0f), all.sum);
  for (int e = 0; e < job.config.experts; ++e) {
    const Floats x = load(values, e);
    const Floats score = is_softmax ? hn::Mul(hn::Exp(f, hn::Sub(x, all.top)), inverse_sum) : sigmoid(x);
    store(hn::Add(score, hn::Set(f, job.bias.empty() ? 0.0f : job.bias[e])), values, e);
  }
}

// ---- groups --------------------------------------------------------------------------------------------------------

Floats score_group(const RouterConfig& config, const float* values, int per_group) {
  Floats first = hn::Set(f, kLowest), second = first;
  for (int e = 0; e < per_group; ++e) {
    const Floats x = load(values, e);
    second = hn::Max(second, hn::Min(first, x));
    first = hn::Max(first, x);
  }
  return config.group_score == GroupScore::kMax ? first : hn::Add(first, second);
}

// How many groups come before group g in each lane.
Floats rank_group(const float* group_score, int groups, int g) {
  const Floats mine = load(group_score, g), one = hn::Set(f, 1.0f);
  Floats rank = hn::Zero(f);
  for (int h = 0; h < g; ++h) rank = hn::Add(rank, hn::IfThenElseZero(hn::Ge(load(group_score, h), mine), one));
  for (int h = g + 1; h < groups; ++h) {
    rank = hn::Add(rank, hn::IfThenElseZero(hn::Gt(load(group_score, h), mine), one));
  }
  return rank;
}

// Puts the experts outside each token's best groups below all others.
void close_groups(const RouterConfig& config, float* values) {
  const int per_group = config.experts / config.groups;
  HWY_ALIGN float group_score[kMaxGroups * kLanes];
  for (int g = 0; g < config.groups; ++g) {
    store(score_group(config, values + g * per_group * kLanes, per_group), group_score, g);
  }
  const Floats open_groups = hn::Set(f, static_cast<float>(config.topk_groups));
  for (int g = 0; g < config.groups; ++g) {
    const Mask closed = hn::Ge(rank_group(group_score, config.groups, g), open_groups);
    for (int e = g * per_group; e < (g + 1) * per_group; ++e) {
      store(hn::IfThenElse(closed, hn::Set(f, kLowest), load(values, e)), values, e);
    }
  }
}

// ---- the K best ----------------------------------------------------------------------------------------------------

// The chosen of a block, best first: expert[k * kLanes + lane].
struct Chosen {
  HWY_ALIGN float value[kMaxTopK * kLanes];
  HWY_ALIGN std::int32_t expert[kMaxTopK * kLanes];
};

// Keeps the K best so far sorted in registers. A new value goes in behind all that are as large (experts come in
// order, so the lower one stays first) and pushes the rest down by one; lanes differ only in where.
template <int K>
void choose(const float* values, int experts, Chosen& out) {
  Floats best[K];
  Ints index[K];
  for (int k = 0; k < K; ++k) best[k] = hn::Set(f, kLowest), index[k] = hn::Zero(i);
  for (int e = 0; e < experts; ++e) {
    const Floats x = load(values, e);
    Mask before = hn::Gt(x, best[K - 1]);
    if (hn::AllFalse(f, before)) continue;
    const Ints expert = hn::Set(i, e);
#pragma GCC unroll 32
    for (int k = K - 1; k > 0; --k) {
      const Mask before_previous = hn::Gt(x, best[k - 1]);
      const Ints pushed = hn::IfThenElse(hn::RebindMask(i, before_previous), index[k - 1], expert);
      index[k] = hn::IfThenElse(hn::RebindMask(i, before), pushed, index[k]);
      best[k] = hn::Max(best[k], hn::Min(best[k - 1], x));
      before = before_previous;
    }
    index[0] = hn::IfThenElse(hn::RebindMask(i, before), expert, index[0]);
    best[0] = hn::Max(best[0], x);
  }
  for (int k = 0; k < K; ++k) {
    store(best[k], out.value, k);
    hn::Store(index[k], i, out.expert + k * kLanes);
  }
}

// Keeping a few more than asked for changes nothing for the first topk.
void choose_topk(int topk, const float* values, int experts, Chosen& out) {
  if (topk <= 1) return choose<1>(values, experts, out);
  if (topk <= 2) return choose<2>(values, experts, out);
  if (topk <= 4) return choose<4>(values, experts, out);
  if (topk <= 6) return choose<6>(values, experts, out);
  if (topk <= 8) return choose<8>(values, experts, out);
  if (topk <= 16) return choose<16>(values, experts, out);
  return choose<kMaxTopK>(values, experts, out);
}

// ---- weights -------------------------------------------------------------------------------------------------------

Floats largest(const float* values, int count) {
  Floats top = load(values, 0);
  for (int k = 1; k < count; ++k) top = hn::Max(top, load(values, k));
  return top;
}

// Scores of the chosen logits, over exp(top) for a sigmoid of a negative top (and `all` for softmax): a common factor
// that renormalising cancels, and without which shares of tiny scores would be 0 / 0.
HWY_INLINE Floats score_chosen(Score score, Floats x, Floats top) {
  if (score == Score::kSoftmax) return exp_difference(x, top);
  const Floats small = exp_difference(hn::Min(x, hn::Zero(f)), top);
  return hn::Div(small, hn::Add(hn::Set(f, 1.0f), hn::Exp(f, hn::Neg(hn::Abs(x)))));
}

// Turns the logits of the chosen into their weights.
void weigh(const RouterConfig& config, const Softmax& all, float* chosen) {
  const int topk = config.topk;
  const bool is_softmax = config.score == Score::kSoftmax;
  Floats top = is_softmax ? all.top : hn::Zero(f), sum = is_softmax ? all.sum : hn::Set(f, 1.0f);
  if (config.renormalize) {
    top = largest(chosen, topk);
    if (!is_softmax) top = hn::Min(top, hn::Zero(f));
    sum = hn::Zero(f);
  }
  for (int k = 0; k < topk; ++k) {
    const Floats score = score_chosen(config.score, load(chosen, k), top);
    if (config.renormalize) sum = hn::Add(sum, score);
    store(score, chosen, k);
  }
  const Floats factor = hn::Div(hn::Set(f, config.scale), sum);
  for (int k = 0; k < topk; ++k) store(hn::Mul(load(chosen, k), factor), chosen, k);
}

// ---- a block -------------------------------------------------------------------------------------------------------

void write_experts(const RouteJob& job, std::int64_t first, int tokens, Chosen& chosen) {
  for (int lane = 0; lane < tokens; ++lane) {
    const float* logits = job.logits.row(first + lane);
    std::int32_t* expert = job.expert.row(first + lane);
    for (int k = 0; k < job.config.topk; ++k) {
      expert[k] = chosen.expert[k * kLanes + lane];
      chosen.value[k * kLanes + lane] = logits[expert[k]];
    }
  }
}

void write_weights(const RouteJob& job, std::int64_t first, int tokens, const Chosen& chosen) {
  for (int lane = 0; lane < tokens; ++lane) {
    float* weight = job.weight.row(first + lane);
    for (int k = 0; k < job.config.topk; ++k) weight[k] = chosen.value[k * kLanes + lane];
  }
}

void route_block(const RouteJob& job, std::int64_t first, int tokens, float* values) {
  const RouterConfig& config = job.config;
  const bool by_logit = compares_logits(config, job.bias);
  Softmax all{hn::Zero(f), hn::Set(f, 1.0f)};
  if (config.score == Score::kSoftmax && !(by_logit && config.renormalize)) all = softmax_over(values, config.experts);
  if (!by_logit) to_choice_values(job, all, values);
  if (limits_groups(config)) close_groups(config, values);
  Chosen chosen;
  choose_topk(config.topk, values, config.experts, chosen);
  write_experts(job, first, tokens, chosen);
  weigh(config, all, chosen.value);
  write_weights(job, first, tokens, chosen);
}

std::int64_t RouteTokens(const RouteJob& job, std::int64_t begin, std::int64_t end) {
  HWY_ALIGN float values[kMaxExperts * kLanes];
  for (std::int64_t first = begin; first < end; first += kLanes) {
    const int tokens = static_cast<int>(std::min<std::int64_t>(kLanes, end - first));
    load_block(job.logits, first, tokens, values);
    if (!all_finite(values, job.config.experts)) return first;
    route_block(job, first, tokens, values);
  }
  return end;
}

// ---- one row, for the backward pass --------------------------------------------------------------------------------

void SoftmaxRow(std::span<const float> logits, float* out) {
  const std::size_t size = logits.size(), whole = size - size % kLanes;
  const float top = *std::max_element(logits.begin(), logits.end());
  const hn::CappedTag<float, 1> one;
  Floats sums = hn::Zero(f);
  for (std::size_t e = 0; e < whole; e += kLanes) {
    const Floats score = hn::Exp(f, hn::Sub(hn::LoadU(f, &logits[e]), hn::Set(f, top)));
    sums = hn::Add(sums, score);
    hn::StoreU(score, f, out + e);
  }
  float sum = hn::GetLane(hn::SumOfLanes(f, sums));
  for (std::size_t e = whole; e < size; ++e) {
    out[e] = hn::GetLane(hn::Exp(one, hn::Set(one, logits[e] - top)));
    sum += out[e];
  }
  for (std::size_t e = 0; e < size; ++e) out[e] /= sum;
}

const char* IsaName() {
  return hwy::TargetName(HWY_TARGET);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace moetax
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moetax {
namespace {
HWY_EXPORT(RouteTokens);
HWY_EXPORT(SoftmaxRow);
HWY_EXPORT(IsaName);
}  // namespace

std::int64_t route_tokens(const RouteJob& job, std::int64_t begin, std::int64_t end) {
  return HWY_DYNAMIC_DISPATCH(RouteTokens)(job, begin, end);
}

void softmax(std::span<const float> logits, float* out) {
  HWY_DYNAMIC_DISPATCH(SoftmaxRow)(logits, out);
}

const char* kernels_isa() {
  return HWY_DYNAMIC_DISPATCH(IsaName)();
}

}  // namespace moetax
#endif  // HWY_ONCE
