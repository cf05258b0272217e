// The forward of a layer whose exchange runs beside its experts: the tokens in parts, two of which are under way.
//
//   exchange   dispatch 0 | dispatch 1 | combine 0 | dispatch 2 | combine 1 | ...
//   rank       shared experts | experts 0 | experts 1 | experts 2 | ...
//
// A token's experts see the same row whichever part it is in, and its sum has the same order: the bits are those of
// forward().
#include <algorithm>
#include <numeric>
#include <utility>

#include "layer/moe_layer_impl.h"

namespace moetax {

Result<void> MoeLayer::Impl::SendPart::operator()() const {
  MOETAX_ASSIGN(part->sent, exchange->dispatch(part->hidden, part->routing));
  return {};
}

Result<void> MoeLayer::Impl::ReturnPart::operator()() const {
  MOETAX_TRY(exchange->combine(std::move(part->sent.handle), part->routing, part->addend, part->out));
  return {};
}

Result<void> MoeLayer::Impl::forward_in_parts(ConstRows hidden, Rows out, const RoutingTable* given,
                                              std::int64_t first_token) {
  MOETAX_TRY(check_shape(hidden, out));
  MOETAX_TRY(route_tokens(hidden, given, first_token));
  cut_into_parts(hidden, out);
  Result<void> result = run_parts(hidden);
  parallel.queue()->drain();  // calls refer to the parts, also after an error
  return result;
}

// As even as they can be; those of a rank with few tokens may be empty, but every rank has as many.
void MoeLayer::Impl::cut_into_parts(ConstRows hidden, Rows out) {
  const auto count = static_cast<std::size_t>(parallel.options().overlap);
  if (parts.size() != count) {
    parts.resize(count);
    for (TokenPart& part : parts) {
      send_part.push_back({&parallel.exchange(), &part});
      return_part.push_back({&parallel.exchange(), &part});
    }
  }
  std::int64_t first = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t left = static_cast<std::int64_t>(count - i);
    const std::int64_t size = (tokens - first + left - 1) / left;
    TokenPart& part = parts[i];
    part.first = first;
    part.hidden = hidden.slice(first, size);
    part.out = out.slice(first, size);
    part.routing.resize(size, routing.topk());
    if (size > 0) {
      std::copy_n(routing.expert().row(first), size * routing.topk(), part.routing.expert().data);
      std::copy_n(routing.weight().row(first), size * routing.topk(), part.routing.weight().data);
    }
    first += size;
  }
}

Result<void> MoeLayer::Impl::run_parts(ConstRows hidden) {
  ExchangeQueue& queue = *parallel.queue();
  const auto send = [&](std::size_t i) {
    if (i < parts.size()) parts[i].dispatched = queue.submit(send_part[i]);
  };
  send(0);
  send(1);
  MOETAX_ASSIGN(const ConstRows shared_rows, run_shared_experts(hidden, nullptr));
  part_rows.clear();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    TokenPart& part = parts[i];
    part.addend = shared_rows.data ? shared_rows.slice(part.first, part.hidden.rows) : ConstRows{};
    MOETAX_TRY(queue.wait(part.dispatched));
    MOETAX_TRY(run_experts(part.sent.batch, nullptr));
    count_part_rows();
    part.combined = queue.submit(return_part[i]);
    send(i + 2);
  }
  expert_rows = part_rows;
  rows = std::accumulate(part_rows.begin(), part_rows.end(), std::int64_t{0});
  return queue.wait(parts.back().combined);
}

void MoeLayer::Impl::count_part_rows() {
  part_rows.resize(expert_rows.size());
  for (std::size_t e = 0; e < expert_rows.size(); ++e) part_rows[e] += expert_rows[e];
}

}  // namespace moetax
