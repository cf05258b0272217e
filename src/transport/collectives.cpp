#include "moetax/transport/collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "moetax/base/function_ref.h"
#include "transport/rank_text.h"

namespace moetax {
namespace {

// Every rank's part of the scratch window: two slots for all_gather, then two chunks for all_reduce_sum. Slots and
// chunks are used in turn. A rank that fills one for the second time has seen everybody post the collective in between,
// and they posted it after they had read the first filling.
constexpr std::size_t kSlotBytes = 4096;
constexpr std::size_t kChunkFloats = std::size_t{128} << 10;  // the chunks of a few ranks stay in the caches
constexpr std::size_t kScratchBytes = 2 * kSlotBytes + 2 * kChunkFloats * sizeof(float);

std::byte* slot(const Window& scratch, Rank rank, std::uint64_t turn) {
  return scratch.at(rank) + (turn % 2) * kSlotBytes;
}

float* chunk(const Window& scratch, Rank rank, std::uint64_t turn) {
  return reinterpret_cast<float*>(scratch.at(rank) + 2 * kSlotBytes) + (turn % 2) * kChunkFloats;
}

std::uint64_t post_to_all(Communicator& comm) {
  const std::uint64_t number = comm.next_collective();
  for (const Rank peer : comm.everyone()) comm.post(Channel::kCollective, peer, number);
  return number;
}

Result<Wait> meet(Communicator& comm, Operation operation, Deadline deadline) {
  const std::uint64_t number = post_to_all(comm);
  return comm.wait(Channel::kCollective, comm.everyone(), number, operation, deadline);
}

Unexpected disagree(const Communicator& comm, std::string_view what, FunctionRef<std::string(Rank)> text_of) {
  std::vector<Rank> ranks;
  std::vector<std::string> texts;
  for (const Rank peer : comm.everyone()) {
    ranks.push_back(comm.world_rank(peer));
    texts.push_back(text_of(peer));
  }
  return Unexpected(disagreement(what, ranks, texts));
}

}  // namespace

Result<Collectives> Collectives::create(Communicator& comm, Deadline deadline) {
  MOETAX_ASSIGN(Window scratch, comm.make_window("collectives", kScratchBytes, deadline));
  return Collectives(comm, std::move(scratch));
}

Result<void> Collectives::barrier(const char* name, Deadline deadline) {
  MOETAX_TRY(meet(*comm_, {name, ++number_}, deadline));
  return {};
}

Result<void> Collectives::all_gather(const char* name, std::span<const std::byte> mine, std::span<std::byte> all,
                                     Deadline deadline) {
  if (mine.size() > kSlotBytes || all.size() != mine.size() * static_cast<std::size_t>(comm_->size())) {
    return fail(ErrorCode::kUsage,
                fmt::format("all_gather of {}: {} bytes from each of {} ranks into {} bytes; at most "
                            "{} bytes a rank, and room for all of them",
                            name, mine.size(), comm_->size(), all.size(), kSlotBytes));
  }
  const std::uint64_t turn = ++number_;
  std::copy(mine.begin(), mine.end(), slot(scratch_, comm_->rank(), turn));
  MOETAX_TRY(meet(*comm_, {name, turn}, deadline));
  for (const Rank peer : comm_->everyone()) {
    std::copy_n(slot(scratch_, peer, turn), mine.size(),
                all.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(peer) * mine.size()));
  }
  return {};
}

Result<void> Collectives::agree(const char* what, std::string_view mine, Deadline deadline) {
  if (mine.size() >= kSlotBytes) {
    return fail(ErrorCode::kUsage,
                fmt::format("agree on {}: {} bytes, at most {} are possible", what, mine.size(), kSlotBytes - 1));
  }
  const std::uint64_t turn = ++number_;
  auto* text = reinterpret_cast<char*>(slot(scratch_, comm_->rank(), turn));
  std::copy(mine.begin(), mine.end(), text);
  text[mine.size()] = '\0';
  MOETAX_TRY(meet(*comm_, {what, turn}, deadline));
  const auto text_of = [&](Rank peer) {
    return std::string_view(reinterpret_cast<const char*>(slot(scratch_, peer, turn)));
  };
  const auto differs = [&](Rank peer) { return text_of(peer) != mine; };
  if (std::none_of(comm_->everyone().begin(), comm_->everyone().end(), differs)) return {};
  return disagree(*comm_, what, [&](Rank peer) { return std::string(text_of(peer)); });
}

Result<std::vector<std::vector<std::byte>>> Collectives::gather_bytes(std::span<const std::byte> mine,
                                                                      Deadline deadline) {
  MOETAX_ASSIGN(const Window window, comm_->make_window("gather", mine.size(), deadline));
  std::copy(mine.begin(), mine.end(), window.local());
  MOETAX_TRY(barrier("gather", deadline));
  std::vector<std::vector<std::byte>> all;
  if (comm_->rank() != 0) return all;
  for (const Rank peer : comm_->everyone()) all.emplace_back(window.at(peer), window.at(peer) + window.bytes(peer));
  return all;
}

// ---- all_reduce_sum -----------------------------------------------------------------------------------------------

namespace {

// sums[i] += values[i]; plain enough for the compiler to vectorise.
void add(float* __restrict sums, const float* __restrict values, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) sums[i] += values[i];
}

// One all_reduce_sum on one rank, chunk by chunk: its own values into the scratch window, its share of all ranks'
// values summed in place there, and everybody's shares copied out. Nobody else reads a rank's own share of its chunk
// before it is summed, so the sums need no room of their own.
class Reduction {
 public:
  Reduction(Communicator& comm, const Window& scratch, Operation operation, Deadline deadline, Observer* observer)
      : comm_(comm), scratch_(scratch), operation_(operation), deadline_(deadline), observer_(observer) {
    record_.name = operation.name;
    record_.phase = "backward";
    record_.family = "all-reduce";
    record_.number = operation.number;
    record_.start_ns = now_ns();
  }

  // `total` of all chunks: the ranks compare it, because with different ones they would wait for each other in vain.
  Result<void> reduce(std::span<float> values, std::size_t total, std::uint64_t turn) {
    {
      const Span span(observer_, Part::kPack, operation_.name);
      std::copy(values.begin(), values.end(), chunk(scratch_, comm_.rank(), turn));
      std::memcpy(slot(scratch_, comm_.rank(), turn), &total, sizeof total);
    }
    MOETAX_TRY(wait_for_all());
    MOETAX_TRY(check_total(total, turn));
    sum_own_share(values.size(), turn);
    MOETAX_TRY(wait_for_all());
    collect(values, turn);
    return {};
  }

  void report() {
    if (!observer_) return;
    record_.end_ns = now_ns();
    observer_->exchanged(record_);
  }

 private:
  struct Share {
    std::size_t begin, end;
  };
  Share share_of(Rank rank, std::size_t count) const {
    const auto size = static_cast<std::size_t>(comm_.size());
    const auto r = static_cast<std::size_t>(rank);
    return {count * r / size, count * (r + 1) / size};
  }

  Result<void> wait_for_all() {
    const Span launch(observer_, Part::kLaunch, operation_.name);
    const std::uint64_t number = post_to_all(comm_);
    const Span idle(observer_, Part::kWait, operation_.name);
    MOETAX_ASSIGN(const Wait wait, comm_.wait(Channel::kCollective, comm_.everyone(), number, operation_,
                                              Deadline::in_seconds(deadline_.seconds())));
    record_.wait_ns += wait.end_ns - wait.start_ns;
    record_.last_rank = wait.last;
    if (observer_ && wait.end_ns > wait.start_ns) {
      observer_->waited({wait.last, wait.start_ns, wait.end_ns, wait.off_cpu_ns});
    }
    return {};
  }

  Result<void> check_total(std::size_t total, std::uint64_t turn) const {
    const auto total_of = [&](Rank peer) {
      std::size_t theirs = 0;
      std::memcpy(&theirs, slot(scratch_, peer, turn), sizeof theirs);
      return theirs;
    };
    const auto same = [&](Rank peer) { return total_of(peer) == total; };
    if (std::all_of(comm_.everyone().begin(), comm_.everyone().end(), same)) return {};
    return disagree(comm_, "the values to reduce", [&](Rank peer) { return std::to_string(total_of(peer)); });
  }

  // In rank order, block by block, so that the sums stay in the first-level cache.
  void sum_own_share(std::size_t count, std::uint64_t turn) {
    const Span span(observer_, Part::kWire, operation_.name);
    const std::int64_t start = now_ns();
    const Share share = share_of(comm_.rank(), count);
    alignas(64) std::array<float, 1024> sums;
    for (std::size_t at = share.begin; at < share.end; at += sums.size()) {
      const std::size_t n = std::min(sums.size(), share.end - at);
      std::copy_n(chunk(scratch_, 0, turn) + at, n, sums.begin());
      for (Rank peer = 1; peer < comm_.size(); ++peer) add(sums.data(), chunk(scratch_, peer, turn) + at, n);
      std::copy_n(sums.begin(), n, chunk(scratch_, comm_.rank(), turn) + at);
    }
    for (const Rank peer : comm_.everyone()) count_bytes(peer, share.end - share.begin);
    record_.transfer_ns += now_ns() - start;
  }

  void collect(std::span<float> values, std::uint64_t turn) {
    const Span span(observer_, Part::kWire, operation_.name);
    const std::int64_t start = now_ns();
    for (const Rank peer : comm_.everyone()) {
      const Share share = share_of(peer, values.size());
      std::copy(chunk(scratch_, peer, turn) + share.begin, chunk(scratch_, peer, turn) + share.end,
                values.begin() + static_cast<std::ptrdiff_t>(share.begin));
      count_bytes(peer, share.end - share.begin);
    }
    record_.transfer_ns += now_ns() - start;
  }

  void count_bytes(Rank peer, std::size_t floats) {
    const auto bytes = static_cast<std::int64_t>(floats * sizeof(float));
    record_.logical_bytes += bytes;
    if (peer != comm_.rank()) record_.physical_bytes += bytes;
    if (comm_.node_of(peer) != comm_.node_of(comm_.rank())) record_.internode_bytes += bytes;
  }

  Communicator& comm_;
  const Window& scratch_;
  Operation operation_;
  Deadline deadline_;
  Observer* observer_;
  ExchangeRecord record_;
};

}  // namespace

Result<void> Collectives::all_reduce_sum(const char* name, std::span<float> values, Deadline deadline,
                                         Observer* observer) {
  Reduction reduction(*comm_, scratch_, {name, ++reductions_}, deadline, observer);
  std::size_t done = comm_->size() == 1 ? values.size() : 0;
  do {
    const std::size_t count = std::min(kChunkFloats, values.size() - done);
    MOETAX_TRY(reduction.reduce(values.subspan(done, count), values.size(), ++number_));
    done += count;
  } while (done < values.size());
  reduction.report();
  return {};
}

}  // namespace moetax
