// Collectives::all_reduce_sum.
#include <algorithm>
#include <array>
#include <utility>

#include "transport/collective_call.h"
#include "transport/scratch.h"

namespace moetax {
namespace {

// sums[i] += values[i]; plain enough for the compiler to vectorise.
void add(float* __restrict sums, const float* __restrict values, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) sums[i] += values[i];
}

struct Range {
  std::size_t begin, end;
  std::size_t size() const { return end - begin; }
};

// Part `idx` of `count` values in `parts`.
Range part_of(std::size_t count, int idx, int parts) {
  const auto i = static_cast<std::size_t>(idx), n = static_cast<std::size_t>(parts);
  return {count * i / n, count * (i + 1) / n};
}

}  // namespace

// One all_reduce_sum on one rank, chunk by chunk: its own values into the scratch window, its share of the node's
// values summed in place there and then with the other nodes' sums, and everybody's shares copied out. Nobody else
// reads a rank's own share of its chunk before it is summed, so the sums need no room of their own.
class Reduction {
 public:
  Reduction(Collectives& owner, Operation operation, Deadline deadline, Observer* observer)
      : owner_(owner),
        comm_(*owner.comm_),
        nodes_(owner.nodes_),
        operation_(operation),
        seconds_(deadline.seconds()),
        observer_(observer) {
    record_.name = operation.name;
    record_.phase = "backward";
    record_.family = "all-reduce";
    record_.number = operation.number;
    record_.start_ns = now_ns();
  }

  // All ranks have come, with as many values.
  Result<void> begin(std::size_t total) {
    const Span launch(observer_, Part::kLaunch, operation_.name);
    const Span idle(observer_, Part::kWait, operation_.name);
    MOETAX_ASSIGN(const Wait wait,
                  owner_.meet({Collectives::Call::Kind::kReduce, operation_.name, operation_.number, total},
                              Deadline::in_seconds(seconds_)));
    note_wait(wait);
    return {};
  }

  Result<void> reduce(std::span<float> values, std::uint64_t turn) {
    {
      const Span span(observer_, Part::kPack, operation_.name);
      std::copy(values.begin(), values.end(), chunk(owner_.scratch_, comm_.rank(), turn));
    }
    MOETAX_TRY(meet_node());
    sum_own_share(values.size(), turn);
    if (nodes_.num_nodes() > 1) MOETAX_TRY(sum_over_nodes(values.size(), turn));
    MOETAX_TRY(meet_node());
    collect(values, turn);
    return {};
  }

  void report() {
    if (!observer_) return;
    record_.end_ns = now_ns();
    observer_->exchanged(record_);
  }

 private:
  // Where nodes differ in size only as many ranks sum as the smallest has: shares belong to rails.
  Range share_of(Rank rank, std::size_t count) const {
    const int place = nodes_.place_of(rank);
    return place < nodes_.num_rails() ? part_of(count, place, nodes_.num_rails()) : Range{0, 0};
  }

  Result<void> meet_node() {
    const Span launch(observer_, Part::kLaunch, operation_.name);
    const std::uint64_t number = comm_.next_node_meeting();
    for (const Rank peer : nodes_.near()) comm_.post(Channel::kNode, peer, number);
    const Span idle(observer_, Part::kWait, operation_.name);
    MOETAX_ASSIGN(const Wait wait,
                  comm_.wait(Channel::kNode, nodes_.near(), number, operation_, Deadline::in_seconds(seconds_)));
    note_wait(wait);
    return {};
  }

  void note_wait(const Wait& wait) {
    record_.wait_ns += wait.end_ns - wait.start_ns;
    record_.last_rank = wait.last;
    if (observer_ && wait.end_ns > wait.start_ns) {
      observer_->waited({wait.last, wait.start_ns, wait.end_ns, wait.off_cpu_ns});
    }
  }

  // In rank order, block by block, so that the sums stay in the first-level cache.
  void sum_own_share(std::size_t count, std::uint64_t turn) {
    const Span span(observer_, Part::kWire, operation_.name);
    const std::int64_t start = now_ns();
    const Range share = share_of(comm_.rank(), count);
    const auto near = nodes_.near();
    alignas(64) std::array<float, 1024> sums;
    for (std::size_t at = share.begin; at < share.end; at += sums.size()) {
      const std::size_t n = std::min(sums.size(), share.end - at);
      std::copy_n(chunk(owner_.scratch_, near.front(), turn) + at, n, sums.begin());
      for (const Rank peer : near.subspan(1)) add(sums.data(), chunk(owner_.scratch_, peer, turn) + at, n);
      std::copy_n(sums.begin(), n, chunk(owner_.scratch_, comm_.rank(), turn) + at);
    }
    for (const Rank peer : near) count_bytes(peer, share.size());
    record_.transfer_ns += now_ns() - start;
  }

  // Along this rank's rail: a piece of its share from every node is summed here, in the order of the nodes, and the
  // finished pieces go round.
  Result<void> sum_over_nodes(std::size_t count, std::uint64_t turn) {
    const Range share = share_of(comm_.rank(), count);
    if (share.size() == 0) return {};
    const Span span(observer_, Part::kWire, operation_.name);
    const std::int64_t start = now_ns();
    const int nodes = nodes_.num_nodes(), here = nodes_.node_of(comm_.rank());
    float* const values = chunk(owner_.scratch_, comm_.rank(), turn) + share.begin;
    const auto piece = [&](int node) {
      const Range range = part_of(share.size(), node, nodes);
      return std::span(values + range.begin, range.size());
    };
    const std::span<float> mine = piece(here);
    const auto room = [&](int node) {
      return std::span(owner_.room_).subspan(static_cast<std::size_t>(node) * mine.size(), mine.size());
    };
    MOETAX_TRY(swap_pieces([&](int node) { return room(node); }, [&](int node) { return piece(node); }));
    std::copy(mine.begin(), mine.end(), room(here).begin());
    std::copy(room(0).begin(), room(0).end(), mine.begin());
    for (int node = 1; node < nodes; ++node) add(mine.data(), room(node).data(), mine.size());
    MOETAX_TRY(swap_pieces([&](int node) { return piece(node); }, [&](int) { return mine; }));
    record_.transfer_ns += now_ns() - start;
    return {};
  }

  template <class In, class Out>
  Result<void> swap_pieces(In in, Out out) {
    auto& messages = owner_.messages_;
    messages.clear();
    for (int node = 0; node < nodes_.num_nodes(); ++node) {
      const Rank peer = nodes_.counterpart(comm_.rank(), node);
      if (peer == comm_.rank()) continue;
      const std::span<float> received = in(node);
      messages.push_back(comm_.receive(peer, std::as_writable_bytes(received)));
      messages.push_back(comm_.send(peer, std::as_bytes(out(node))));
      count_bytes(peer, received.size());
    }
    MOETAX_TRY(comm_.finish(messages, operation_, Deadline::in_seconds(seconds_)));
    return {};
  }

  void collect(std::span<float> values, std::uint64_t turn) {
    const Span span(observer_, Part::kWire, operation_.name);
    const std::int64_t start = now_ns();
    for (const Rank peer : nodes_.near()) {
      const Range share = share_of(peer, values.size());
      std::copy(chunk(owner_.scratch_, peer, turn) + share.begin, chunk(owner_.scratch_, peer, turn) + share.end,
                values.begin() + static_cast<std::ptrdiff_t>(share.begin));
      count_bytes(peer, share.size());
    }
    record_.transfer_ns += now_ns() - start;
  }

  void count_bytes(Rank peer, std::size_t floats) {
    const auto bytes = static_cast<std::int64_t>(floats * sizeof(float));
    record_.logical_bytes += bytes;
    if (peer != comm_.rank()) record_.physical_bytes += bytes;
    if (!comm_.shares_memory(peer)) record_.internode_bytes += bytes;
  }

  Collectives& owner_;
  Communicator& comm_;
  const NodeMap& nodes_;
  Operation operation_;
  double seconds_;
  Observer* observer_;
  ExchangeRecord record_;
};

Result<void> Collectives::all_reduce_sum(const char* name, std::span<float> values, Deadline deadline,
                                         Observer* observer) {
  Reduction reduction(*this, {name, ++reductions_}, deadline, observer);
  MOETAX_TRY(reduction.begin(values.size()));
  for (std::size_t done = comm_->size() == 1 ? values.size() : 0; done < values.size(); done += kChunkFloats) {
    const std::size_t count = std::min(kChunkFloats, values.size() - done);
    MOETAX_TRY(reduction.reduce(values.subspan(done, count), ++chunks_));
  }
  reduction.report();
  return {};
}

}  // namespace moetax
