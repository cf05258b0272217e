#include "moetax/layer/moe_layer.h"

#include <fmt/format.h>

#include <cstring>

#include "layer/moe_layer_impl.h"
#include "moetax/base/parallel.h"

namespace moetax {

Result<void> ensure(PageBuffer& buffer, std::size_t bytes) {
  if (buffer.size() >= bytes) return {};
  MOETAX_ASSIGN(buffer, PageBuffer::reserve(bytes));
  return {};
}

namespace {

// What all ranks must agree on, in one line.
std::string describe(const LayerConfig& c) {
  return fmt::format("H={} I={} shared I={} E={} K={} groups={}/{} score={} scale={} biases={}{}{} activation={} {}",
                     c.hidden, c.inter, c.shared_inter, c.router.experts, c.router.topk, c.router.topk_groups,
                     c.router.groups, static_cast<int>(c.router.score), c.router.scale, int{c.router.renormalize},
                     int{c.router_bias}, int{c.expert_bias}, static_cast<int>(c.activation), to_string(c.dtype));
}

}  // namespace

MoeLayer::MoeLayer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MoeLayer::~MoeLayer() = default;
MoeLayer::MoeLayer(MoeLayer&&) noexcept = default;
MoeLayer& MoeLayer::operator=(MoeLayer&&) noexcept = default;

Result<MoeLayer> MoeLayer::create(ExpertParallel& parallel, const LayerConfig& config, Activations activations) {
  const ExpertParallelOptions& group = parallel.options();
  MOETAX_TRY(parallel.over_world().agree("the layer", describe(config), Deadline::in_seconds(group.deadline_s)));
  MOETAX_TRY(validate(config.router));
  if (group.hidden != config.hidden || group.experts != config.router.experts || group.topk != config.router.topk ||
      group.dtype != config.dtype) {
    return fail(ErrorCode::kUsage,
                fmt::format("the layer (H={} E={} K={} {}) does not fit its exchange (H={} E={} K={} {})",
                            config.hidden, config.router.experts, config.router.topk, to_string(config.dtype),
                            group.hidden, group.experts, group.topk, to_string(group.dtype)));
  }
  if (activations == Activations::kRecompute && group.in_flight < 2) {
    return fail(ErrorCode::kUsage, "a layer that recomputes activations needs an ExpertParallel with in_flight = 2");
  }
  FfnShape routed{.hidden = config.hidden,
                  .inter = config.inter,
                  .experts = parallel.placement().count(parallel.ep_rank()),
                  .activation = config.activation,
                  .clamp_limit = config.clamp_limit,
                  .bias = config.expert_bias};
  MOETAX_ASSIGN(Linear router, Linear::create(config.hidden, config.router.experts, config.dtype, group.threads));
  MOETAX_ASSIGN(FeedForward experts, FeedForward::create(routed, config.dtype, group.threads));
  auto impl = std::make_unique<Impl>(parallel, config, activations, std::move(router), std::move(experts));
  if (config.shared_inter > 0) {
    FfnShape shared = routed;
    shared.inter = config.shared_inter;
    shared.experts = 1;
    shared.bias = false;
    MOETAX_ASSIGN(impl->shared, FeedForward::create(shared, config.dtype, group.threads));
  }
  return MoeLayer(std::move(impl));
}

Result<void> MoeLayer::forward(ConstRows hidden, Rows out, LayerSaved* saved, const RoutingTable* given,
                               std::int64_t first_token) {
  if (!impl_->parallel.queue()) return impl_->told(impl_->forward(hidden, out, saved, given, first_token));
  if (saved) return impl_->told(fail(ErrorCode::kUsage, "an overlapped layer keeps nothing for a backward"));
  return impl_->told(impl_->forward_in_parts(hidden, out, given, first_token));
}

Result<void> MoeLayer::Impl::forward(ConstRows hidden, Rows out, LayerSaved* saved, const RoutingTable* given,
                                     std::int64_t first_token) {
  Exchange& exchange = parallel.exchange();
  MOETAX_TRY(check_shape(hidden, out));
  MOETAX_TRY(route_tokens(hidden, given, first_token));
  MOETAX_ASSIGN(Dispatched sent, exchange.dispatch(hidden, routing));
  MOETAX_ASSIGN(const ConstRows shared_rows, run_shared_experts(hidden, saved));
  MOETAX_TRY(run_experts(sent.batch, saved));
  MOETAX_ASSIGN(DispatchLayout layout, exchange.combine(std::move(sent.handle), routing, shared_rows, out));
  if (saved) keep(std::move(layout), *saved);
  return {};
}

Result<void> MoeLayer::Impl::check_shape(ConstRows hidden, ConstRows out) const {
  const bool fits = hidden.cols == config.hidden && out.cols == config.hidden && out.rows == hidden.rows &&
                    hidden.dtype == config.dtype && out.dtype == config.dtype &&
                    hidden.rows <= parallel.options().max_tokens;
  if (fits) return {};
  return fail(ErrorCode::kUsage,
              fmt::format("the layer takes up to {} tokens of H={} {} in and out, not [{}, {}] {} and [{}, {}] {}",
                          parallel.options().max_tokens, config.hidden, to_string(config.dtype), hidden.rows,
                          hidden.cols, to_string(hidden.dtype), out.rows, out.cols, to_string(out.dtype)));
}

Result<void> MoeLayer::Impl::route_tokens(ConstRows hidden, const RoutingTable* given, std::int64_t first_token) {
  const Span span(observer(), Part::kCompute, "router");
  tokens = hidden.rows;
  logits.resize(static_cast<std::size_t>(tokens * config.router.experts));
  const MatrixView<float> scores(logits.data(), tokens, config.router.experts);
  router.forward(hidden, scores);
  if (!router_bias.empty()) {
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t e = 0; e < scores.cols; ++e) scores(t, e) += router_bias[static_cast<std::size_t>(e)];
    }
  }
  MOETAX_TRY(route(config.router, scores, selection_bias, threads(), routing, first_token));
  if (!given) return {};
  if (given->tokens() != tokens || given->topk() != config.router.topk) {
    return fail(ErrorCode::kUsage, fmt::format("the given routing holds {} tokens of top-{}, the batch {} of top-{}",
                                               given->tokens(), given->topk(), tokens, config.router.topk));
  }
  routing = *given;
  return {};
}

Result<ConstRows> MoeLayer::Impl::run_shared_experts(ConstRows hidden, LayerSaved* saved) {
  if (!shared) return ConstRows{};
  const Span span(observer(), Part::kCompute, "shared experts");
  MOETAX_TRY(ensure(shared_out, hidden.bytes()));
  const Rows out{shared_out.data(), hidden.dtype, hidden.rows, hidden.cols};
  const auto count = static_cast<std::int32_t>(hidden.rows);
  const bool keep_intermediates = saved && activations == Activations::kKeep;
  shared->forward({hidden, {&count, 1}}, out, keep_intermediates ? &saved->shared : nullptr);
  return ConstRows(out);
}

Result<void> MoeLayer::Impl::run_experts(const ExpertBatch& batch, LayerSaved* saved) {
  rows = batch.rows.rows;
  expert_rows.assign(batch.count.begin(), batch.count.end());
  const bool keep_intermediates = saved && activations == Activations::kKeep;
  {
    const Span span(observer(), Part::kCompute, "experts");
    experts.forward({batch.rows, batch.count}, batch.out, keep_intermediates ? &saved->experts : nullptr);
  }
  if (!keep_intermediates) return {};
  // The exchange's buffers serve the next dispatch, so what the backward needs is copied out.
  const Span span(observer(), Part::kPack, "keep rows");
  MOETAX_TRY(ensure(saved->rows, batch.rows.bytes()));
  const std::size_t row_bytes = batch.rows.row_bytes();
  parallel_for(rows, threads(), 64, [&](std::int64_t begin, std::int64_t end) {
    std::memcpy(saved->rows.data() + static_cast<std::size_t>(begin) * row_bytes, batch.rows.row(begin),
                static_cast<std::size_t>(end - begin) * row_bytes);
  });
  return {};
}

void MoeLayer::Impl::keep(DispatchLayout layout, LayerSaved& saved) {
  saved.layout = std::move(layout);
  saved.routing = routing;
  saved.logits = logits;
}

Result<void> MoeLayer::init_weights(std::uint64_t seed, int layer_idx) {
  Impl& impl = *impl_;
  const LayerConfig& config = impl.config;
  const auto experts = static_cast<std::size_t>(config.router.experts);
  const auto hidden = static_cast<std::size_t>(config.hidden);
  const auto row = [&](Parameter parameter, ExpertId expert, std::int64_t i, std::span<float> out) {
    initial_row(config, seed, layer_idx, parameter, expert, i, out);
  };
  std::vector<float> router(experts * hidden);
  for (std::size_t e = 0; e < experts; ++e) {
    row(Parameter::kRouter, 0, static_cast<std::int64_t>(e), std::span(router).subspan(e * hidden, hidden));
  }
  std::vector<float> bias(config.router_bias ? experts : 0);
  if (!bias.empty()) row(Parameter::kRouterBias, 0, 0, bias);
  MOETAX_TRY(set_router(router, bias));
  constexpr Parameter kRouted[] = {Parameter::kW13, Parameter::kW2, Parameter::kB13, Parameter::kB2};
  const int first = impl.parallel.placement().first(impl.parallel.ep_rank());
  for (int local = 0; local < impl.parallel.placement().count(impl.parallel.ep_rank()); ++local) {
    MOETAX_TRY(impl.experts.fill_weights(
        local, [&](int matrix, std::int64_t i, std::span<float> out) { row(kRouted[matrix], first + local, i, out); }));
  }
  if (!impl.shared) return {};
  return impl.shared->fill_weights(0, [&](int matrix, std::int64_t i, std::span<float> out) {
    row(matrix == 0 ? Parameter::kSharedW13 : Parameter::kSharedW2, 0, i, out);
  });
}

Result<void> MoeLayer::set_router(std::span<const float> w, std::span<const float> bias) {
  const std::size_t expected = impl_->config.router_bias ? static_cast<std::size_t>(impl_->config.router.experts) : 0;
  if (bias.size() != expected) {
    return fail(ErrorCode::kUsage,
                fmt::format("the router's bias has {} values, this layer {}", bias.size(), expected));
  }
  MOETAX_TRY(impl_->router.set_weights(w));
  impl_->router_bias.assign(bias.begin(), bias.end());
  return {};
}

void MoeLayer::set_selection_bias(std::span<const float> bias) {
  impl_->selection_bias.assign(bias.begin(), bias.end());
}

Result<void> MoeLayer::set_expert(ExpertId expert, const ExpertWeights& weights) {
  const ExpertPlacement& placement = impl_->parallel.placement();
  if (expert < 0 || expert >= placement.experts) {
    return fail(ErrorCode::kUsage, fmt::format("expert {} of {}", expert, placement.experts));
  }
  if (placement.owner(expert) != impl_->parallel.ep_rank()) return {};
  return impl_->experts.set_weights(placement.local_index(expert), weights);
}

Result<void> MoeLayer::set_shared(const ExpertWeights& weights) {
  if (!impl_->shared) return fail(ErrorCode::kUsage, "this layer has no shared experts");
  return impl_->shared->set_weights(0, weights);
}

const RoutingTable& MoeLayer::routing() const {
  return impl_->routing;
}
std::span<const std::int32_t> MoeLayer::expert_rows() const {
  return impl_->expert_rows;
}

std::size_t MoeLayer::weight_bytes() const {
  const LayerConfig& config = impl_->config;
  const auto router = static_cast<std::size_t>(config.router.experts * config.hidden) * size_of(config.dtype);
  return router + impl_->experts.weight_bytes() + (impl_->shared ? impl_->shared->weight_bytes() : 0);
}

double MoeLayer::forward_flops() const {
  const auto tokens = static_cast<double>(impl_->tokens);
  const double router =
      2.0 * tokens * static_cast<double>(impl_->config.hidden) * static_cast<double>(impl_->config.router.experts);
  const double shared = impl_->shared ? tokens * impl_->shared->flops_per_row() : 0;
  return router + shared + static_cast<double>(impl_->rows) * impl_->experts.flops_per_row();
}

double MoeLayer::backward_flops() const {
  // Two products of the same size for each of the forward's; recomputing runs all but the router's once more.
  const double router = 2.0 * static_cast<double>(impl_->tokens * impl_->config.hidden * impl_->config.router.experts);
  const double again = impl_->activations == Activations::kRecompute ? forward_flops() - router : 0.0;
  return 2.0 * forward_flops() + again;
}

}  // namespace moetax
