#include "exchange/impl.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "moetax/base/memory.h"
#include "moetax/machine/host.h"
#include "moetax/transport/collectives.h"
#include "moetax/wire/format.h"

namespace moetax {
namespace {

// Of a core's second-level cache: from how much on rows are written around the caches.
constexpr std::size_t kStreamCaches = 4;

// What each rank tells the others when the exchange is made.
struct Sizes {
  std::int64_t max_tokens;
  std::int64_t offered_bytes;
};

std::string describe(const ExchangeOptions& o) {
  return fmt::format("H={} E={} K={} {} {}{} in_flight={}", o.hidden, o.experts, o.topk, to_string(o.dtype),
                     to_string(o.algorithm), o.fp32_sums ? " fp32 sums" : "", o.in_flight);
}

std::string describe(ConstRows rows) {
  return fmt::format("[{}, {}] {}", rows.rows, rows.cols, to_string(rows.dtype));
}

}  // namespace

// ---- Set-up ----

Exchange::Impl::Impl(std::unique_ptr<Communicator> own_comm, const ExchangeOptions& opts)
    : comm(std::move(own_comm)),
      options(opts),
      placement{opts.experts, comm->size()},
      self(comm->rank()),
      row_bytes(exact_format(opts.dtype).row_bytes(opts.hidden)),
      builder(placement, self),
      max_tokens(static_cast<std::size_t>(comm->size())),
      max_offered_bytes(max_tokens.size()) {
  const std::size_t l2_bytes = probe_host().l2_bytes;
  stream_bytes = kStreamCaches * (l2_bytes ? l2_bytes : kUsualL2Bytes);
  max_offered_bytes[static_cast<std::size_t>(self)] = offered_limit_bytes(l2_bytes);
}

// A token has at most one row per expert of the rank.
std::int64_t Exchange::Impl::max_rows(Rank rank) const {
  std::int64_t tokens = 0;
  for (const std::int64_t of_rank : max_tokens) tokens += of_rank;
  return tokens * std::min(options.topk, placement.count(rank));
}

std::int64_t Exchange::Impl::max_copies(Rank from, Rank to) const {
  return max_tokens[static_cast<std::size_t>(from)] * std::max(0, std::min(options.topk, placement.count(to)) - 1);
}

// Lists of copies lie one after another by sender, each behind a header line with its size.
CopyList Exchange::Impl::copy_list(Rank from, Rank to) const {
  if (!is_near(to)) return {};
  std::byte* at = list_window.at(to) + list_offset(from, to);
  return {reinterpret_cast<std::int64_t*>(at), reinterpret_cast<RowCopy*>(at + sizeof(std::int64_t))};
}

std::size_t Exchange::Impl::list_offset(Rank from, Rank to) const {
  std::size_t offset = 0;
  for (Rank r = 0; r < from; ++r) {
    const std::size_t bytes = sizeof(std::int64_t) + static_cast<std::size_t>(max_copies(r, to)) * sizeof(RowCopy);
    offset += to_lines(bytes);
  }
  return offset;
}

std::int64_t Exchange::Impl::max_offered(Rank rank) const {
  const std::int64_t fit = max_offered_bytes[static_cast<std::size_t>(rank)] / static_cast<std::int64_t>(row_bytes);
  return std::min({max_tokens[static_cast<std::size_t>(rank)], kMaxOfferedRows, fit});
}

Offer Exchange::Impl::make_offer(Rank rank, std::size_t slot) const {
  if (!is_near(rank)) return {};
  const std::size_t choice_bytes = static_cast<std::size_t>(max_offered(rank) * options.topk) * sizeof(std::int32_t);
  std::byte* at = offer_window.at(rank) + slot * offer_bytes(rank);
  Offer offer;
  offer.count = reinterpret_cast<std::int32_t*>(at);
  offer.far_rows = offer.count + options.experts;
  offer.choice = reinterpret_cast<std::int32_t*>(at += to_lines(num_counts() * sizeof(std::int32_t)));
  offer.rows = at + to_lines(choice_bytes);
  return offer;
}

std::size_t Exchange::Impl::num_counts() const {
  return static_cast<std::size_t>(options.experts) + (far ? max_tokens.size() : 0);
}

std::size_t Exchange::Impl::offer_bytes(Rank rank) const {
  const auto rows = static_cast<std::size_t>(max_offered(rank)), topk = static_cast<std::size_t>(options.topk);
  return to_lines(num_counts() * sizeof(std::int32_t)) + to_lines(rows * topk * sizeof(std::int32_t)) +
         to_lines(rows * row_bytes);
}

Result<void> Exchange::Impl::make_windows(Deadline deadline) {
  MOETAX_ASSIGN(Collectives collectives, Collectives::create(*comm, deadline));
  MOETAX_TRY(collectives.agree("the exchange", describe(options), deadline));
  const Sizes mine{options.max_tokens, max_offered_bytes[static_cast<std::size_t>(self)]};
  std::vector<Sizes> sizes(max_tokens.size());
  MOETAX_TRY(collectives.all_gather("exchange sizes", std::as_bytes(std::span(&mine, 1)),
                                    std::as_writable_bytes(std::span(sizes)), deadline));
  for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
    max_tokens[rank] = sizes[rank].max_tokens;
    max_offered_bytes[rank] = sizes[rank].offered_bytes;
  }
  // Row numbers travel as 32-bit integers. All ranks know all sizes, so all come to the same verdict.
  for (const Rank rank : comm->everyone()) {
    if (max_rows(rank) <= std::numeric_limits<std::int32_t>::max()) continue;
    return fail(ErrorCode::kUsage,
                fmt::format("rank {} could be sent {} rows, more than the 2147483647 an exchange can "
                            "number: use fewer tokens per step",
                            comm->world_rank(rank), max_rows(rank)));
  }
  if (NodeMap(*comm).num_nodes() > 1) {
    MOETAX_ASSIGN(far, Far::create(*comm, options, max_tokens));
  }
  const auto rows = static_cast<std::size_t>(max_rows(self));
  MOETAX_ASSIGN(offer_window, comm->make_window("exchange offers", 2 * offer_bytes(self), deadline));
  MOETAX_ASSIGN(list_window, comm->make_window("exchange copy lists", list_offset(comm->size(), self), deadline));
  for (int idx = 0; idx < options.in_flight; ++idx) {
    auto set = std::make_shared<Buffers>();
    set->idx = idx;
    MOETAX_ASSIGN(set->rows, comm->make_window("exchange rows", rows * row_bytes, deadline));
    MOETAX_ASSIGN(set->out, comm->make_window("exchange results", rows * row_bytes, deadline));
    MOETAX_ASSIGN(set->gate, comm->make_window("exchange gate weights", rows * sizeof(float), deadline));
    buffer_sets.push_back(std::move(set));
  }
  for (Rank r = 0; r < comm->size(); ++r) {
    lists_out.push_back(copy_list(self, r));
    for (const std::size_t slot : {0, 1}) {
      offers[slot].push_back(make_offer(r, slot));
      all_counts[slot].push_back(is_near(r) ? offers[slot].back().count : far->offer_of(r).count);
    }
  }
  pushers.reserve(all_counts[0].size());
  return {};
}

Store Exchange::Impl::store_for(std::int64_t rows) const {
  return static_cast<std::size_t>(rows) * row_bytes > stream_bytes ? Store::kStreaming : Store::kCached;
}

// ---- Checks ----

Result<void> Exchange::Impl::check_rows(const char* what, std::int64_t tokens, ConstRows rows) const {
  const ConstRows expected{nullptr, options.dtype, tokens, options.hidden};
  if (rows.rows == tokens && rows.cols == options.hidden && rows.dtype == options.dtype) return {};
  return fail(ErrorCode::kUsage, fmt::format("{} are {}, expected {}", what, describe(rows), describe(expected)));
}

Result<void> Exchange::Impl::check_routing(const char* call, std::int64_t tokens, const RoutingTable& routing) const {
  if (routing.tokens() == tokens && routing.topk() == options.topk) return {};
  return fail(ErrorCode::kUsage, fmt::format("{}: the routing table is [{}, {}], expected [{}, {}]", call,
                                             routing.tokens(), routing.topk(), tokens, options.topk));
}

Result<void> Exchange::Impl::check_layout(const char* call, const DispatchLayout& layout) const {
  if (layout.state_ && layout.state_->owner == this) return {};
  return fail(ErrorCode::kUsage,
              fmt::format("{}: {}", call,
                          layout.state_ ? "the layout is of another exchange" : "the handle or layout is empty"));
}

// ---- Steps between ranks ----

Result<std::shared_ptr<DispatchLayout::State>> Exchange::Impl::take_layout() {
  for (const auto& layout : layouts) {
    if (layout.use_count() == 1) return layout;
  }
  auto layout = std::make_shared<State>();
  std::int64_t copies = 0;
  for (Rank r = 0; r < comm->size(); ++r) copies += r == self ? 0 : max_copies(r, self);
  layout->owner = this;
  layout->count.resize(static_cast<std::size_t>(placement.count(self)));
  // Worst cases, left untouched: their pages are taken as they are used.
  const auto choices = static_cast<std::size_t>(options.max_tokens * options.topk);
  MOETAX_ASSIGN(layout->place_memory, PageBuffer::reserve(choices * sizeof(Place)));
  MOETAX_ASSIGN(layout->copy_memory, PageBuffer::reserve(static_cast<std::size_t>(copies) * sizeof(RowCopy)));
  layout->place = layout->place_memory.as<Place>();
  layout->copy = layout->copy_memory.as<RowCopy>();
  layouts.push_back(layout);
  return layout;
}

Result<std::shared_ptr<DispatchHandle::Buffers>> Exchange::Impl::take_buffers(const char* call) const {
  for (const auto& set : buffer_sets) {
    if (set.use_count() == 1) return set;
  }
  return fail(ErrorCode::kUsage,
              fmt::format("{}: {} handle{} alive already, as many as in_flight allows: combine or drop one first", call,
                          options.in_flight, options.in_flight == 1 ? " is" : "s are"));
}

void Exchange::Impl::post_all(Channel channel, std::uint64_t value, const Note& note) const {
  for (const Rank peer : comm->everyone()) {
    if (peer != self) comm->post(channel, peer, value, note);
  }
}

void Exchange::Impl::post_near(Channel channel, std::uint64_t value) const {
  for (const Rank peer : comm->everyone()) {
    if (peer != self && is_near(peer)) comm->post(channel, peer, value);
  }
}

// The common case of peers in step costs a look at their flags and no clock.
Result<void> Exchange::Impl::await(Call& call, Channel channel, std::span<const Rank> ranks, Part idle) const {
  const auto here = [&](Rank peer) { return peer == self || comm->arrived(channel, peer, call.number()); };
  if (std::all_of(ranks.begin(), ranks.end(), here)) return {};
  const Deadline deadline = Deadline::in_seconds(options.deadline_s);
  const Operation operation{call.name(), call.number()};
  if (idle == Part::kWire) {
    Call::Wire wire(call, "wait for rows");
    MOETAX_TRY(comm->wait(channel, ranks, call.number(), operation, deadline));
    return {};
  }
  Span span(options.observer, Part::kWait, "wait for peers");
  MOETAX_ASSIGN(const Wait wait, comm->wait(channel, ranks, call.number(), operation, deadline));
  if (wait.end_ns > wait.start_ns) {
    call.waited({comm->world_rank(wait.last), wait.start_ns, wait.end_ns, wait.off_cpu_ns});
  }
  return {};
}

// Where a call waits for late peers, and where all see whether they make the same call.
Result<void> Exchange::Impl::join(Call& call, Announcement mine) {
  mine.algorithm = options.algorithm;
  comm->enter({call.name(), call.number()});
  post_all(Channel::kCall, call.number(), mine.note());
  MOETAX_TRY(await(call, Channel::kCall, comm->everyone(), Part::kWait));
  pushers.clear();
  for (const Rank peer : comm->everyone()) {
    const Announcement theirs = peer == self ? mine : announced(call, peer);
    if (!theirs.same_call(mine)) return different_call(call, mine, peer);
    if (is_near(peer) && theirs.pushes) pushers.push_back(peer);
  }
  return {};
}

Announcement Exchange::Impl::announced(const Call& call, Rank peer) const {
  return Announcement::from(comm->note(Channel::kCall, peer, call.number()));
}

Unexpected Exchange::Impl::different_call(const Call& call, const Announcement& mine, Rank peer) const {
  const auto text = [](const Announcement& of) {
    const std::string layout = of.layout ? fmt::format(" of dispatch #{}", of.layout) : "";
    return fmt::format("{}{} with buffers {}, {}", name_of(of.kind), layout, of.buffers_idx, to_string(of.algorithm));
  };
  const Rank world = comm->world_rank(peer);
  return fail(ErrorCode::kPeerFailed,
              fmt::format("exchange #{}: rank {} called {}, rank {} called {}; all ranks must make the same calls and "
                          "drop the same handles in the same order",
                          call.number(), comm->world_rank(self), text(mine), world, text(announced(call, peer))),
              world);
}

// ---- Announcements ----

Note Announcement::note() const {
  return {{layout, static_cast<std::uint64_t>(tokens) << 24 | static_cast<std::uint64_t>(algorithm) << 17 |
                       static_cast<std::uint64_t>(pushes) << 16 | static_cast<std::uint64_t>(buffers_idx) << 8 |
                       static_cast<std::uint64_t>(kind)}};
}

Announcement Announcement::from(const Note& note) {
  const std::uint64_t word = note.word[1];
  return {static_cast<CallKind>(word & 0xff),
          static_cast<int>(word >> 8 & 0xff),
          note.word[0],
          (word >> 16 & 1) != 0,
          static_cast<ExchangeAlgorithm>(word >> 17 & 0x7f),
          static_cast<std::int64_t>(word >> 24)};
}

}  // namespace moetax
