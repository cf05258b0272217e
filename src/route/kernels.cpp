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

constexpr FloatTag f;  // tags: they pick the vectors an operation works on
constexpr IntTag i;
constexpr std::int64_t kLanes = hn::MaxLanes(f);
constexpr float kLowest = -std::numeric_limits<float>::infinity();

// A block's values lie expert by expert: values[e * kLanes + lane].
HWY_INLINE Floats load(const float* values, std::int64_t e) {
  return hn::Load(f, values + e * kLanes);
}
HWY_INLINE void store(Floats x, float* values, std::int64_t e) {
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
    hn::Store(hn::ConcatLowerLower(q, cd_low, ab_low), q, values + e * kLanes);
    hn::Store(hn::ConcatUpperUpper(q, cd_low, ab_low), q, values + (e + 1) * kLanes);
    hn::Store(hn::ConcatLowerLower(q, cd_high, ab_high), q, values + (e + 2) * kLanes);
    hn::Store(hn::ConcatUpperUpper(q, cd_high, ab_high), q, values + (e + 3) * kLanes);
  }
  return e;
}
#endif

// Lanes beyond the last token repeat it.
void load_block(MatrixView<const float> logits, std::int64_t first, std::int64_t tokens, float* values) {
  const int experts = static_cast<int>(logits.cols);
  const float* row[kLanes];
  for (std::int64_t lane = 0; lane < kLanes; ++lane) row[lane] = logits.row(first + std::min(lane, tokens - 1));
  constexpr std::int64_t kQuad = kLanes < 4 ? kLanes : 4;
  for (std::int64_t lane = 0; lane < kLanes; lane += kQuad) {
    for (int e = load_quads(row + lane, experts, values + lane); e < experts; ++e) {
      for (std::int64_t l = lane; l < lane + kQuad; ++l) values[e * kLanes + l] = row[l][e];
    }
  }
}

bool all_finite(const float* values, int experts) {
  // As integers, the magnitudes of infinities and NaNs begin where those of the finite numbers end.
  const Ints magnitude = hn::Set(i, 0x7fffffff), infinity = hn::Set(i, 0x7f800000);
  Ints largest = hn::Zero(i);
  for (int e = 0; e < experts; ++e) {
    largest = hn::Max(largest, hn::And(hn::BitCast(i, load(values, e)), magnitude));
  }
  return hn::AllTrue(i, hn::Lt(largest, infinity));
}

// ---- scores --------------------------------------------------------------------------------------------------------

// exp(x) for x <= 0, relative error below 1.5e-7; zero below about -87.7, where the result would not be normal.
// 2^n e^r with n = round(x / ln 2). Adding kShift rounds: it leaves n + 127, the exponent's bits, lowest in the sum,
// and -88 gives the exponent 0, the number zero. The polynomial is minimax on [-ln 2 / 2, ln 2 / 2], ln 2 in two parts.
template <class D>
HWY_INLINE hn::Vec<D> exp_negative(D d, hn::Vec<D> x) {
  constexpr float kShift = 12582912.0f + 127.0f;  // 1.5 * 2^23: units are the last place
  x = hn::Max(x, hn::Set(d, -88.0f));
  const auto shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), hn::Set(d, kShift));
  const auto n = hn::Sub(shifted, hn::Set(d, kShift));
  const auto power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(hn::RebindToUnsigned<D>(), shifted)));
  const auto r = hn::NegMulAdd(n, hn::Set(d, 1.42860677e-6f), hn::NegMulAdd(n, hn::Set(d, 0.693145752f), x));
  auto p = hn::MulAdd(r, hn::Set(d, 0.00138141739f), hn::Set(d, 0.00836892147f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.0416684076f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.166665196f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.49999994f));
  p = hn::MulAdd(p, hn::Mul(r, r), r);
  return hn::MulAdd(p, power, power);
}

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
      run = hn::Add(run, exp_negative(f, hn::Sub(load(values, e), top)));
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
  const Floats e = exp_negative(f, difference);
  // Far below, the difference may have overflowed and left no number in `lost`.
  return hn::IfThenElseZero(hn::Gt(difference, hn::Set(f, -88.0f)), hn::MulAdd(e, lost, e));
}

HWY_INLINE Floats sigmoid(Floats x) {
  const Floats one = hn::Set(f, 1.0f), e = exp_negative(f, hn::Neg(hn::Abs(x)));
  return hn::Div(hn::IfThenElse(hn::Lt(x, hn::Zero(f)), e, one), hn::Add(one, e));
}

// Replaces logits by what the choice compares: score + bias.
void to_choice_values(const RouteJob& job, const Softmax& all, float* values) {
  const bool is_softmax = job.config.score == Score::kSoftmax;
  const Floats inverse_sum = hn::Div(hn::Set(f, 1.0f), all.sum);
  for (int e = 0; e < job.config.experts; ++e) {
    const Floats x = load(values, e);
    const Floats score = is_softmax ? hn::Mul(exp_negative(f, hn::Sub(x, all.top)), inverse_sum) : sigmoid(x);
    store(hn::Add(score, hn::Set(f, job.bias.empty() ? 0.0f : job.bias[e])), values, e);
  }
}

// ---- groups --------------------------------------------------------------------------------------------------------

Floats score_group(const RouterConfig& config, const float* values, std::int64_t per_group) {
  Floats first = hn::Set(f, kLowest), second = first;
  for (std::int64_t e = 0; e < per_group; ++e) {
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
  const std::int64_t per_group = config.experts / config.groups;
  HWY_ALIGN float group_score[kMaxGroups * kLanes];
  for (int g = 0; g < config.groups; ++g) {
    store(score_group(config, values + g * per_group * kLanes, per_group), group_score, g);
  }
  const Floats open_groups = hn::Set(f, static_cast<float>(config.topk_groups));
  for (int g = 0; g < config.groups; ++g) {
    const Mask closed = hn::Ge(rank_group(group_score, config.groups, g), open_groups);
    for (std::int64_t e = g * per_group; e < (g + 1) * per_group; ++e) {
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

// In a few lanes most experts change nothing, and the branch saves their work. In eight or more, one lane nearly always
// takes the expert, or it is anybody's guess, and mispredicted branches cost more than they save.
constexpr bool kSkipsWorse = kLanes < 8;

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
    if constexpr (kSkipsWorse) {
      if (hn::AllFalse(f, before)) continue;
    }
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

// exp(x - top), or sigmoid(x) / exp(top), which needs top <= 0. Renormalising cancels the division, and without it the
// shares of scores too small for fp32 would be 0 / 0.
HWY_INLINE Floats score_chosen(Score score, Floats x, Floats top) {
  if (score == Score::kSoftmax) return exp_difference(x, top);
  const Floats small = exp_difference(hn::Min(x, hn::Zero(f)), top);
  return hn::Div(small, hn::Add(hn::Set(f, 1.0f), exp_negative(f, hn::Neg(hn::Abs(x)))));
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

void write_experts(const RouteJob& job, std::int64_t first, std::int64_t tokens, Chosen& chosen) {
  for (std::int64_t lane = 0; lane < tokens; ++lane) {
    const float* logits = job.logits.row(first + lane);
    std::int32_t* expert = job.expert.row(first + lane);
    for (int k = 0; k < job.config.topk; ++k) {
      expert[k] = chosen.expert[k * kLanes + lane];
      chosen.value[k * kLanes + lane] = logits[expert[k]];
    }
  }
}

void write_weights(const RouteJob& job, std::int64_t first, std::int64_t tokens, const Chosen& chosen) {
  for (std::int64_t lane = 0; lane < tokens; ++lane) {
    float* weight = job.weight.row(first + lane);
    for (int k = 0; k < job.config.topk; ++k) weight[k] = chosen.value[k * kLanes + lane];
  }
}

void route_block(const RouteJob& job, std::int64_t first, std::int64_t tokens, float* values) {
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
    const std::int64_t tokens = std::min(kLanes, end - first);
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
    const Floats score = exp_negative(f, hn::Sub(hn::LoadU(f, &logits[e]), hn::Set(f, top)));
    sums = hn::Add(sums, score);
    hn::StoreU(score, f, out + e);
  }
  float sum = hn::GetLane(hn::SumOfLanes(f, sums));
  for (std::size_t e = whole; e < size; ++e) {
    out[e] = hn::GetLane(exp_negative(one, hn::Set(one, logits[e] - top)));
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
