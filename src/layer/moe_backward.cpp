// The backward pass: combine's mirror is a dispatch of d_out, dispatch's mirror is a combine of d_x.
#include <algorithm>

#include "layer/moe_layer_impl.h"
#include "moetax/base/parallel.h"

namespace moetax {
namespace {

void add_rows(ConstRows from, int threads, MatrixView<float> to) {
  parallel_for(from.rows, threads, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      float* out = to.row(t);
      if (from.dtype == DType::kFp32) {
        const auto* in = reinterpret_cast<const float*>(from.row(t));
        for (std::int64_t j = 0; j < from.cols; ++j) out[j] += in[j];
      } else {
        const auto* in = reinterpret_cast<const Bf16*>(from.row(t));
        for (std::int64_t j = 0; j < from.cols; ++j) out[j] += to_float(in[j]);
      }
    }
  });
}

void add(std::span<const float> from, int threads, std::span<float> to) {
  parallel_for(static_cast<std::int64_t>(from.size()), threads, 1 << 14, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) to[i] += from[i];
  });
}

}  // namespace

Result<void> MoeLayer::backward(ConstRows hidden, LayerSaved& saved, ConstRows d_out, MatrixView<float> d_hidden,
                                LayerGradients& gradients, bool accumulate) {
  return impl_->told(impl_->backward(hidden, saved, d_out, d_hidden, gradients, accumulate));
}

Result<void> MoeLayer::Impl::backward(ConstRows hidden, LayerSaved& saved, ConstRows d_out, MatrixView<float> d_hidden,
                                      LayerGradients& gradients, bool accumulate) {
  MOETAX_TRY(check_shape(hidden, d_out));
  size_gradients(gradients);
  size_gradients(partial);
  MOETAX_TRY(experts_backward(hidden, saved, d_out, d_hidden, gradients, accumulate));
  MOETAX_TRY(shared_backward(hidden, saved, d_out, d_hidden));
  router_backward(hidden, saved, d_hidden);
  return reduce_gradients(gradients, accumulate);
}

// The rows the experts worked on: kept by the forward, or sent again along the kept layout.
Result<MoeLayer::Impl::ExpertInput> MoeLayer::Impl::expert_input(ConstRows hidden, LayerSaved& saved) {
  if (activations == Activations::kKeep) {
    return ExpertInput{{saved.rows.data(), config.dtype, saved.layout.rows(), config.hidden}, {}};
  }
  MOETAX_ASSIGN(Dispatched again, parallel.exchange().redispatch(saved.layout, hidden));
  return ExpertInput{again.batch.rows, std::move(again.handle)};
}

Result<void> MoeLayer::Impl::experts_backward(ConstRows hidden, LayerSaved& saved, ConstRows d_out,
                                              MatrixView<float> d_hidden, LayerGradients& gradients, bool accumulate) {
  Exchange& exchange = parallel.exchange();
  MOETAX_ASSIGN(ExpertInput input, expert_input(hidden, saved));
  MOETAX_ASSIGN(Dispatched sent, exchange.dispatch_grad(saved.layout, saved.routing, d_out));
  d_gate.resize(static_cast<std::size_t>(saved.layout.rows()));
  {
    const Span span(observer(), Part::kCompute, "experts backward");
    // Gradients that replicas will sum are made apart, so that what the caller accumulated is not summed again.
    const bool reduced = parallel.replicas() > 1;
    LayerGradients& target = reduced ? partial : gradients;
    FfnSaved* kept = activations == Activations::kKeep ? &saved.experts : nullptr;
    experts.backward({input.rows, saved.layout.count()}, kept, sent.batch.rows, sent.batch.weight, sent.batch.out,
                     d_gate, {target.w13, target.w2, target.b13, target.b2}, accumulate && !reduced);
  }
  d_weight.resize(static_cast<std::size_t>(hidden.rows * config.router.topk));
  MOETAX_TRY(exchange.combine_grad(std::move(sent.handle), d_gate, d_hidden,
                                   {d_weight.data(), hidden.rows, config.router.topk}));
  if (activations == Activations::kRecompute) return exchange.release(std::move(input.handle));
  return {};
}

Result<void> MoeLayer::Impl::shared_backward(ConstRows hidden, LayerSaved& saved, ConstRows d_out,
                                             MatrixView<float> d_hidden) {
  if (!shared) return {};
  const Span span(observer(), Part::kCompute, "shared experts backward");
  MOETAX_TRY(ensure(d_shared_hidden, hidden.bytes()));
  const Rows d_x{d_shared_hidden.data(), hidden.dtype, hidden.rows, hidden.cols};
  const auto count = static_cast<std::int32_t>(hidden.rows);
  FfnSaved* kept = activations == Activations::kKeep ? &saved.shared : nullptr;
  shared->backward({hidden, {&count, 1}}, kept, d_out, {}, d_x, {}, {partial.shared_w13, partial.shared_w2, {}, {}},
                   false);
  add_rows(d_x, threads(), d_hidden);
  return {};
}

void MoeLayer::Impl::router_backward(ConstRows hidden, LayerSaved& saved, MatrixView<float> d_hidden) {
  const Span span(observer(), Part::kCompute, "router backward");
  const std::int64_t num_experts = config.router.experts;
  d_logits.resize(static_cast<std::size_t>(hidden.rows * num_experts));
  d_router_hidden.resize(static_cast<std::size_t>(hidden.rows * config.hidden));
  const MatrixView<float> d_scores(d_logits.data(), hidden.rows, num_experts);
  const MatrixView<float> d_x(d_router_hidden.data(), hidden.rows, config.hidden);
  route_backward(config.router, {saved.logits.data(), hidden.rows, num_experts}, saved.routing,
                 {d_weight.data(), hidden.rows, config.router.topk}, threads(), d_scores);
  router.backward(hidden, d_scores, d_x, partial.router, false);
  std::fill(partial.router_bias.begin(), partial.router_bias.end(), 0.0f);
  for (std::int64_t t = 0; t < hidden.rows && config.router_bias; ++t)
    add(d_scores.row_span(t), 1, partial.router_bias);
  add_rows({reinterpret_cast<const std::byte*>(d_x.data), DType::kFp32, d_x.rows, d_x.cols}, threads(), d_hidden);
}

Result<void> MoeLayer::Impl::reduce_gradients(LayerGradients& gradients, bool accumulate) {
  struct Group {
    Collectives& ranks;
    const char* name;
  };
  const auto finish = [&](std::vector<float>& mine, std::vector<float>& theirs, const Group& over) -> Result<void> {
    if (mine.empty()) return {};
    MOETAX_TRY(over.ranks.all_reduce_sum(over.name, mine, deadline(), observer()));
    const Span span(observer(), Part::kPack, "accumulate gradients");
    if (!accumulate) std::fill(theirs.begin(), theirs.end(), 0.0f);
    add(mine, threads(), theirs);
    return {};
  };
  const Group world{parallel.over_world(), shared ? "reduce (router, shared)" : "reduce (router)"};
  MOETAX_TRY(finish(partial.router, gradients.router, world));
  MOETAX_TRY(finish(partial.router_bias, gradients.router_bias, world));
  MOETAX_TRY(finish(partial.shared_w13, gradients.shared_w13, world));
  MOETAX_TRY(finish(partial.shared_w2, gradients.shared_w2, world));
  if (parallel.replicas() == 1) return {};
  const Group replicas{parallel.over_replicas(), "reduce (experts)"};
  MOETAX_TRY(finish(partial.w13, gradients.w13, replicas));
  MOETAX_TRY(finish(partial.w2, gradients.w2, replicas));
  MOETAX_TRY(finish(partial.b13, gradients.b13, replicas));
  return finish(partial.b2, gradients.b2, replicas);
}

void MoeLayer::Impl::size_gradients(LayerGradients& gradients) const {
  const auto h = static_cast<std::size_t>(config.hidden), i = static_cast<std::size_t>(config.inter),
             s = static_cast<std::size_t>(config.shared_inter), e = static_cast<std::size_t>(config.router.experts);
  const bool expert_part = &gradients != &partial || parallel.replicas() > 1;
  const std::size_t local = expert_part ? static_cast<std::size_t>(experts.shape().experts) : 0;
  gradients.router.resize(e * h);
  gradients.router_bias.resize(config.router_bias ? e : 0);
  gradients.w13.resize(local * 2 * i * h);
  gradients.w2.resize(local * h * i);
  gradients.b13.resize(config.expert_bias ? local * 2 * i : 0);
  gradients.b2.resize(config.expert_bias ? local * h : 0);
  gradients.shared_w13.resize(2 * s * h);
  gradients.shared_w2.resize(h * s);
}

}  // namespace moetax
