#include "moetax/exchange/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "exchange/impl.h"
#include "moetax/base/memory.h"
#include "moetax/route/router.h"

namespace moetax {
namespace {

Result<void> validate(const ExchangeOptions& o) {
  const auto refuse = [](const char* name, std::int64_t value, std::int64_t least, std::int64_t most) {
    return fail(ErrorCode::kUsage, fmt::format("exchange: {} = {}, possible are {} to {}", name, value, least, most));
  };
  const auto outside = [](std::int64_t value, std::int64_t least, std::int64_t most) {
    return value < least || value > most;
  };
  constexpr std::int64_t kMaxTokens = std::int64_t{1} << 24, kMaxHidden = std::int64_t{1} << 20;
  if (outside(o.max_tokens, 0, kMaxTokens)) return refuse("max_tokens", o.max_tokens, 0, kMaxTokens);
  if (outside(o.hidden, 1, kMaxHidden)) return refuse("hidden", o.hidden, 1, kMaxHidden);
  if (outside(o.experts, 1, kMaxExperts)) return refuse("experts", o.experts, 1, kMaxExperts);
  const int max_topk = std::min(o.experts, kMaxTopK);
  if (outside(o.topk, 1, max_topk)) return refuse("topk", o.topk, 1, max_topk);
  if (outside(o.in_flight, 1, 16)) return refuse("in_flight", o.in_flight, 1, 16);
  if (outside(o.threads, 1, 4096)) return refuse("threads", o.threads, 1, 4096);
  return {};
}

// Every error of a call ends the waits of the other ranks.
template <class T>
Result<T> tell_others(Communicator& comm, Result<T> result) {
  if (!result) comm.fail(result.error());
  return result;
}

template <class Body>
void each_window(const Exchange::Impl& x, Body body) {
  body(x.offer_window);
  body(x.list_window);
  for (const auto& set : x.buffer_sets) {
    body(set->rows);
    body(set->out);
    body(set->gate);
  }
}

}  // namespace

Result<Exchange> Exchange::create(Communicator& comm, const ExchangeOptions& options) {
  const Deadline deadline = Deadline::in_seconds(options.deadline_s);
  const auto set_up = [&]() -> Result<Exchange> {
    MOETAX_TRY(validate(options));
    MOETAX_ASSIGN(auto own_comm, comm.split(0, deadline));
    auto impl = std::make_unique<Impl>(std::move(own_comm), options);
    MOETAX_TRY(impl->make_windows(deadline));
    return Exchange(std::move(impl));
  };
  return tell_others(comm, set_up());
}

Exchange::Exchange(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Exchange::~Exchange() = default;
Exchange::Exchange(Exchange&&) noexcept = default;
Exchange& Exchange::operator=(Exchange&&) noexcept = default;

// ---- The calls ----

Result<Dispatched> Exchange::Impl::dispatch(ConstRows tokens, const RoutingTable& routing) {
  Call call(options.observer, comm->world_rank(self), "dispatch", "forward", ++number);
  if (routing.tokens() > options.max_tokens) {
    return fail(ErrorCode::kUsage, fmt::format("dispatch: {} tokens, the exchange was made for at most {}",
                                               routing.tokens(), options.max_tokens));
  }
  MOETAX_TRY(check_routing("dispatch", routing.tokens(), routing));
  MOETAX_TRY(check_rows("dispatch: tokens", routing.tokens(), tokens));
  MOETAX_ASSIGN(auto buffers, take_buffers("dispatch"));
  ++sends;
  MOETAX_TRY(builder.count_choices(routing, {offer(self).count, static_cast<std::size_t>(options.experts)}));
  if (far) {
    far->count_rows(routing, {offer(self).far_rows, max_tokens.size()});
    far->start_offers({offer(self).count, num_counts()});
  }
  const bool pushes = tokens.rows > max_offered(self);
  if (!pushes) lay_open(tokens, routing);
  MOETAX_TRY(
      join(call, {.kind = CallKind::kDispatch, .buffers_idx = buffers->idx, .pushes = pushes, .tokens = tokens.rows}));
  MOETAX_TRY(learn_far_counts(call));
  MOETAX_ASSIGN(auto layout, take_layout());
  layout->number = call.number();
  const auto lists = pushes ? std::span<const CopyList>(lists_out) : std::span<const CopyList>();
  builder.build(routing, all_counts[sends % 2], lists, *layout);
  plan_far(routing, *layout);
  return send(call, std::move(layout), std::move(buffers), {.rows = tokens, .pushes = pushes, .new_layout = true});
}

Result<Dispatched> Exchange::Impl::send_again(CallKind kind, const DispatchLayout& layout, const Cargo& cargo) {
  const char* name = name_of(kind);
  Call call(options.observer, comm->world_rank(self), name, "backward", ++number);
  MOETAX_TRY(check_layout(name, layout));
  if (cargo.weights) MOETAX_TRY(check_routing(name, layout.tokens(), *cargo.weights));
  MOETAX_TRY(check_rows(kind == CallKind::kRedispatch ? "redispatch: tokens" : "dispatch_grad: gradients",
                        layout.tokens(), cargo.rows));
  MOETAX_ASSIGN(auto buffers, take_buffers(name));
  ++sends;
  MOETAX_TRY(join(call, {.kind = kind,
                         .buffers_idx = buffers->idx,
                         .layout = layout.state_->number,
                         .pushes = true,
                         .tokens = cargo.rows.rows}));
  return send(call, layout.state_, std::move(buffers), cargo);
}

Result<DispatchLayout> Exchange::Impl::combine(DispatchHandle handle, const RoutingTable& routing, ConstRows addend,
                                               Rows out) {
  Call call(options.observer, comm->world_rank(self), "combine", "forward", ++number);
  MOETAX_TRY(check_layout("combine", handle.layout_));
  State& layout = *handle.layout_.state_;
  MOETAX_TRY(check_routing("combine", layout.tokens, routing));
  MOETAX_TRY(check_weights(layout, routing));
  MOETAX_TRY(check_rows("combine: outputs", layout.tokens, out));
  if (addend.data) MOETAX_TRY(check_rows("combine: addends", layout.tokens, addend));
  MOETAX_TRY(join(call, {.kind = CallKind::kCombine, .buffers_idx = handle.buffers_->idx, .layout = layout.number}));
  MOETAX_TRY(fetch_far(call, layout, *handle.buffers_, true));
  pull_weighted(call, layout, *handle.buffers_, routing, addend, out);
  call.finish();
  return std::move(handle.layout_);
}

Result<void> Exchange::Impl::combine_grad(DispatchHandle handle, std::span<const float> d_gate,
                                          MatrixView<float> d_tokens, MatrixView<float> d_weight) {
  Call call(options.observer, comm->world_rank(self), "combine_grad", "backward", ++number);
  MOETAX_TRY(check_layout("combine_grad", handle.layout_));
  State& layout = *handle.layout_.state_;
  if (static_cast<std::int64_t>(d_gate.size()) != layout.rows || d_tokens.rows != layout.tokens ||
      d_tokens.cols != options.hidden || d_weight.rows != layout.tokens || d_weight.cols != options.topk) {
    return fail(ErrorCode::kUsage,
                fmt::format("combine_grad: d_gate [{}], d_tokens [{}, {}], d_weight [{}, {}]; expected [{}], [{}, {}], "
                            "[{}, {}]",
                            d_gate.size(), d_tokens.rows, d_tokens.cols, d_weight.rows, d_weight.cols, layout.rows,
                            layout.tokens, options.hidden, layout.tokens, options.topk));
  }
  std::copy(d_gate.begin(), d_gate.end(), reinterpret_cast<float*>(handle.buffers_->gate.local()));
  MOETAX_TRY(
      join(call, {.kind = CallKind::kCombineGrad, .buffers_idx = handle.buffers_->idx, .layout = layout.number}));
  MOETAX_TRY(fetch_far(call, layout, *handle.buffers_, false));
  pull_gradients(call, layout, *handle.buffers_, d_tokens, d_weight);
  take_far_gradients(layout, d_weight);
  call.finish();
  return {};
}

Result<Dispatched> Exchange::dispatch(ConstRows tokens, const RoutingTable& routing) {
  return tell_others(*impl_->comm, impl_->dispatch(tokens, routing));
}

Result<DispatchLayout> Exchange::combine(DispatchHandle handle, const RoutingTable& routing, ConstRows addend,
                                         Rows out) {
  return tell_others(*impl_->comm, impl_->combine(std::move(handle), routing, addend, out));
}

Result<Dispatched> Exchange::dispatch_grad(const DispatchLayout& layout, const RoutingTable& routing, ConstRows d_out) {
  return tell_others(*impl_->comm,
                     impl_->send_again(CallKind::kDispatchGrad, layout, {.rows = d_out, .weights = &routing}));
}

Result<void> Exchange::combine_grad(DispatchHandle handle, std::span<const float> d_gate, MatrixView<float> d_tokens,
                                    MatrixView<float> d_weight) {
  return tell_others(*impl_->comm, impl_->combine_grad(std::move(handle), d_gate, d_tokens, d_weight));
}

Result<Dispatched> Exchange::redispatch(const DispatchLayout& layout, ConstRows tokens) {
  return tell_others(*impl_->comm, impl_->send_again(CallKind::kRedispatch, layout, {.rows = tokens}));
}

Result<void> Exchange::release(DispatchHandle handle) {
  return tell_others(*impl_->comm, impl_->check_layout("release", handle.layout_));
}

Result<void> Exchange::Impl::set_algorithm(ExchangeAlgorithm algorithm) {
  const auto in_use = [](const auto& layout) { return layout.use_count() > 1; };
  if (std::any_of(layouts.begin(), layouts.end(), in_use)) {
    return fail(ErrorCode::kUsage, "set_algorithm: a handle or layout is alive; combine, release or drop it first");
  }
  if (far) MOETAX_TRY(far->set_algorithm(algorithm));
  options.algorithm = algorithm;
  return {};
}

Result<void> Exchange::set_algorithm(ExchangeAlgorithm algorithm) {
  return tell_others(*impl_->comm, impl_->set_algorithm(algorithm));
}

// ---- What there is ----

ExchangeAlgorithm Exchange::algorithm() const {
  return impl_->options.algorithm;
}

const ExpertPlacement& Exchange::placement() const {
  return impl_->placement;
}

std::size_t Exchange::reserved_bytes() const {
  std::size_t bytes = 0;
  each_window(*impl_, [&](const Window& window) { bytes += window.reserved_bytes(); });
  if (impl_->far) bytes += impl_->far->reserved_bytes();
  for (const auto& layout : impl_->layouts) bytes += layout->place_memory.size() + layout->copy_memory.size();
  return bytes;
}

std::size_t Exchange::touched_bytes() const {
  std::size_t bytes = 0;
  each_window(*impl_, [&](const Window& window) { bytes += resident_bytes(window.local(), window.reserved_bytes()); });
  if (impl_->far) bytes += resident_bytes(impl_->far->memory(), impl_->far->reserved_bytes());
  for (const auto& layout : impl_->layouts) {
    bytes += resident_bytes(layout->place_memory.data(), layout->place_memory.size());
    bytes += resident_bytes(layout->copy_memory.data(), layout->copy_memory.size());
  }
  return bytes;
}

std::int64_t DispatchLayout::tokens() const {
  return state_ ? state_->tokens : 0;
}
std::int64_t DispatchLayout::rows() const {
  return state_ ? state_->rows : 0;
}
std::span<const std::int32_t> DispatchLayout::count() const {
  return state_ ? std::span<const std::int32_t>(state_->count) : std::span<const std::int32_t>();
}

}  // namespace moetax
