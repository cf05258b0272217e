// The steps of a call that cross between nodes.
#include <fmt/format.h>

#include "exchange/impl.h"

namespace moetax {

Result<void> Exchange::Impl::learn_far_counts(Call& call) {
  if (!far) return {};
  const Deadline deadline = Deadline::in_seconds(options.deadline_s);
  return far->finish_offers({call.name(), call.number()}, deadline);
}

void Exchange::Impl::plan_far(const RoutingTable& routing, State& layout) {
  if (!far) return;
  far_offers.clear();
  for (const Rank peer : comm->everyone()) {
    const Offer& theirs = offer(peer);
    far_offers.push_back(is_near(peer) ? FarOffer{theirs.count, theirs.far_rows} : far->offer_of(peer));
  }
  far->plan(routing, far_offers, layout);
}

Result<void> Exchange::Impl::send_far(Call& call, State& layout, const Buffers& buffers, const Cargo& cargo,
                                      FunctionRef<void()> meanwhile) {
  Call::Wire wire(call, "carry rows");
  const NodeRows node{&buffers.rows, &buffers.out, &buffers.gate};
  MOETAX_ASSIGN(const Far::Moved moved, far->dispatch(layout, cargo.rows, cargo.weights, cargo.new_layout, node,
                                                      {call.name(), call.number()}, meanwhile));
  tell_flows(call, moved.carried);
  const auto bytes = static_cast<std::int64_t>(row_bytes);
  call.moved({.logical = layout.far.destinations * bytes,
              .physical = (moved.carried.sent_rows + moved.handed_on) * bytes,
              .internode = moved.carried.sent_rows * bytes});
  return {};
}

Result<void> Exchange::Impl::fetch_far(Call& call, State& layout, const Buffers& buffers, bool weighted) {
  if (!far) return {};
  Call::Wire wire(call, "carry rows");
  const NodeRows node{&buffers.rows, &buffers.out, &buffers.gate};
  MOETAX_ASSIGN(const Far::Moved moved, far->combine(layout, weighted, node, {call.name(), call.number()}));
  tell_flows(call, moved.carried);
  const auto bytes = static_cast<std::int64_t>(row_bytes), crossed = static_cast<std::int64_t>(far->returned_bytes());
  const std::int64_t internode = moved.carried.received_rows * crossed;
  call.moved({.physical = internode + moved.handed_on * bytes, .internode = internode});
  return {};
}

void Exchange::Impl::tell_flows(const Call& call, const Carried& carried) const {
  if (!call.observer()) return;
  for (FlowRecord flow : carried.flows) {
    flow.peer = comm->world_rank(flow.peer);
    if (flow.bytes > 0) call.observer()->flowed(flow);
  }
}

// Two-level stops sum with the weights they were sent with the rows.
Result<void> Exchange::Impl::check_weights(const State& layout, const RoutingTable& routing) const {
  if (!far || !far->sums_per_node()) return {};
  const FarLayout& crossed = layout.far;
  for (std::size_t i = 0; i < crossed.choice.size(); ++i) {
    if (routing.weight().data[crossed.choice[i]] == crossed.out.weight[i]) continue;
    return fail(ErrorCode::kUsage,
                fmt::format("combine: the gate weights of token {} are not those of its dispatch, with which the "
                            "two-level exchange sums on the way",
                            crossed.choice[i] / options.topk));
  }
  return {};
}

void Exchange::Impl::take_far_gradients(const State& layout, MatrixView<float> d_weight) const {
  if (!far) return;
  for (std::size_t i = 0; i < layout.far.choice.size(); ++i) {
    const std::int64_t choice = layout.far.choice[i];
    d_weight(choice / options.topk, choice % options.topk) = far->returned_gate()[i];
  }
}

}  // namespace moetax
