// Collective set-up calls of LocalCommunicator: windows and split.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "transport/local_communicator.h"
#include "transport/rank_text.h"

namespace moetax {
namespace {

constexpr std::size_t kMaxWindowBytes = std::size_t{1} << 46;  // all ranks together; half of a process's addresses

// Behind the last rank's region: how many ranks hold the window, so that the last one gives its pages back.
struct WindowTail {
  std::atomic<std::uint32_t> holders;
};

// One rank's share in a window.
class WindowHold {
 public:
  WindowHold(std::shared_ptr<Segment> segment, std::shared_ptr<Mapping> mapping, std::uint64_t offset,
             std::size_t bytes)
      : segment_(std::move(segment)), mapping_(std::move(mapping)), offset_(offset), bytes_(bytes) {
    tail().holders.fetch_add(1);
  }
  ~WindowHold() {
    if (tail().holders.fetch_sub(1) == 1) segment_->drop_pages(offset_, bytes_ + sizeof(WindowTail));
  }
  WindowHold(const WindowHold&) = delete;
  WindowHold& operator=(const WindowHold&) = delete;

 private:
  WindowTail& tail() const { return *reinterpret_cast<WindowTail*>(mapping_->data() + bytes_); }

  std::shared_ptr<Segment> segment_;
  std::shared_ptr<Mapping> mapping_;
  std::uint64_t offset_;
  std::size_t bytes_;
};

}  // namespace

Result<Window> LocalCommunicator::make_window(std::string_view name, std::size_t bytes, Deadline deadline) {
  Offer mine;
  mine.call = Offer::Call::kWindow;
  mine.set_name(name);
  mine.bytes = bytes;
  MOETAX_TRY(begin_call(mine, deadline));

  std::vector<std::size_t> sizes(members_.size());
  std::vector<std::size_t> starts(members_.size());
  std::size_t total = 0;  // in this rank's memory
  std::size_t all = 0;
  for (std::size_t peer = 0; peer < members_.size(); ++peer) {
    sizes[peer] = offer_of(static_cast<Rank>(peer)).bytes;
    starts[peer] = total;
    if (sizes[peer] > kMaxWindowBytes - all) {  // the same on all ranks, so nobody is left waiting
      return moetax::fail(ErrorCode::kUnavailable, fmt::format("window \"{}\": rank {} asks for {} bytes, beyond the "
                                                               "address space",
                                                               name, world_rank(static_cast<Rank>(peer)), sizes[peer]));
    }
    all += round_to_grain(sizes[peer]);
    if (!is_far(static_cast<Rank>(peer))) total += round_to_grain(sizes[peer]);
  }
  MOETAX_ASSIGN(const Range range, share_range(mine, everyone_, total + sizeof(WindowTail), deadline));
  auto hold = std::make_shared<WindowHold>(job_.segment, range.mapping, range.offset, total);
  // The last to hold the window gives its pages back, so nobody may let go before everybody holds it.
  MOETAX_TRY(meet(mine, deadline));

  std::vector<std::byte*> base(starts.size());
  for (const Rank peer : everyone_) {
    const auto idx = static_cast<std::size_t>(peer);
    base[idx] = shares_memory(peer) ? range.mapping->data() + starts[idx] : nullptr;
    if (!shares_memory(peer)) sizes[idx] = 0;
  }
  prefer_own_numa_node(base[static_cast<std::size_t>(rank_)], bytes);
  return Window(std::move(hold), std::move(base), std::move(sizes), rank_);
}

Result<std::unique_ptr<Communicator>> LocalCommunicator::split(int color, Deadline deadline) {
  Offer mine;
  mine.call = Offer::Call::kSplit;
  mine.color = color;
  if (job_.link) mine.context = job_.link->unused_context();
  MOETAX_TRY(begin_call(mine, deadline));

  std::vector<Rank> group, members;
  std::uint32_t context = 0;
  for (const Rank peer : everyone_) {
    context = std::max(context, offer_of(peer).context);
    if (offer_of(peer).color != color) continue;
    group.push_back(peer);
    members.push_back(world_rank(peer));
  }
  if (job_.link) job_.link->use_contexts_up_to(context);
  const auto rank = static_cast<Rank>(std::find(group.begin(), group.end(), rank_) - group.begin());
  const bool pipes = !job_.link && job_.places->several_nodes(members);
  const std::size_t bytes = Group::bytes(static_cast<int>(group.size()), pipes);
  MOETAX_ASSIGN(Range range, share_range(mine, group, bytes, deadline));
  std::byte* memory = range.mapping->data();
  return std::unique_ptr<Communicator>(
      new LocalCommunicator(job_, context, std::move(members), rank, std::move(range.mapping), memory));
}

// Leaves `mine` for the others; returns when every rank's offer of this round can be read.
Result<void> LocalCommunicator::meet(const Offer& mine, Deadline deadline) {
  ++round_;
  group_.offer(round_, rank_) = mine;
  for (const Rank peer : everyone_) {
    if (is_far(peer)) {
      job_.link->offer(world_rank(peer), context_, round_, mine);
    } else {
      post_line(group_.setup_lines_to(peer)[rank_], peer, round_);
    }
  }
  const std::string what = mine.text();
  MOETAX_TRY(wait_lines(group_.setup_lines_to(rank_), everyone_, round_, {what.c_str(), round_}, deadline));
  return {};
}

// The first round of a call, in which the ranks find out whether they all make the same one.
Result<void> LocalCommunicator::begin_call(const Offer& mine, Deadline deadline) {
  MOETAX_TRY(meet(mine, deadline));
  std::vector<std::string> calls(members_.size());
  std::transform(everyone_.begin(), everyone_.end(), calls.begin(), [&](Rank peer) { return offer_of(peer).text(); });
  if (std::equal(calls.begin() + 1, calls.end(), calls.begin())) return {};
  return Unexpected(disagreement("the set-up call", members_, calls));
}

const Offer& LocalCommunicator::offer_of(Rank rank) const {
  if (!is_far(rank)) return group_.offer(round_, rank);
  return far_offers_[(round_ % 2) * members_.size() + static_cast<std::size_t>(rank)];
}

// The first of `group` that has the memory of `rank`.
Rank LocalCommunicator::leader_for(std::span<const Rank> group, Rank rank) const {
  return *std::find_if(group.begin(), group.end(),
                       [&](Rank other) { return job_.same_memory(world_rank(other), world_rank(rank)); });
}

// The second round: in each memory a leader takes `bytes` of the segment for its part of `group`, the others map them.
// Where one leader fails all of the group do.
Result<LocalCommunicator::Range> LocalCommunicator::share_range(Offer mine, std::span<const Rank> group,
                                                                std::size_t bytes, Deadline deadline) {
  if (rank_ == leader_for(group, rank_)) {
    auto offset = job_.segment->allocate(bytes);
    if (offset) {
      mine.offset = *offset;
    } else {
      mine.set_why(offset.error().message);
    }
  }
  MOETAX_TRY(meet(mine, deadline));
  for (const Rank leader : group) {
    if (leader != leader_for(group, leader) || offer_of(leader).offset != 0) continue;
    return moetax::fail(ErrorCode::kUnavailable, fmt::format("{}: {}", mine.text(), offer_of(leader).why.data()),
                        world_rank(leader));
  }
  const std::uint64_t offset = offer_of(leader_for(group, rank_)).offset;
  MOETAX_ASSIGN(auto mapping, job_.segment->map(offset, bytes));
  return Range{offset, std::move(mapping)};
}

}  // namespace moetax
