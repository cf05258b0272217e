#include "cli/calibrate_links.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <utility>

#include "cli/calibrate_turns.h"
#include "moetax/base/memory.h"
#include "moetax/transport/node_map.h"
#include "moetax/wire/rows.h"

namespace moetax::cli {
namespace {

constexpr std::size_t kSmallest = 16, kLargest = std::size_t{16} << 20;
constexpr std::size_t kRowBytes = 4096;  // of copies and sums
constexpr std::size_t kTerms = 6;        // of sums

// Enough for a median, and about a second for all sizes of a link of 1 Gbit/s.
int turns_for(std::size_t bytes) {
  return static_cast<int>(std::clamp<std::size_t>((std::size_t{2} << 20) / bytes, 5, 101));
}

class LinkMeter {
 public:
  LinkMeter(Communicator& comm, Turns turns, Window window, PageBuffer data, double deadline_s)
      : comm_(comm),
        turns_(std::move(turns)),
        window_(std::move(window)),
        data_(std::move(data)),
        nodes_(comm),
        deadline_s_(deadline_s) {}

  Result<void> memory(MeasuredLink& link) {
    const auto near = nodes_.ranks_of(0);
    const Rank first = near[0], second = near[1];
    return over_sizes(link, kSmallest, [&](std::size_t bytes) -> Result<double> {
      if (comm_.rank() == first) return ping(second, bytes);
      if (comm_.rank() == second) {
        MOETAX_TRY(pong(first, bytes));
      } else {
        ++number_;  // all ranks count alike
      }
      return 0.0;
    });
  }

  Result<void> memory_shared(MeasuredLink& link) {
    const auto near = nodes_.near();
    const auto place = static_cast<std::size_t>(nodes_.place_of(comm_.rank()));
    const Rank next = near[(place + 1) % near.size()], before = near[(place + near.size() - 1) % near.size()];
    return over_sizes(link, kSmallest, [&](std::size_t bytes) -> Result<double> {
      if (near.size() < 2) return 0.0;
      return time_us([&]() -> Result<void> {
        put(next, bytes);
        MOETAX_TRY(comm_.wait(Channel::kRows, std::array{before}, number_, operation(), deadline()));
        return {};
      });
    });
  }

  // The place moves on with each turn, so that what is copied was not just in a cache.
  Result<void> copy(MeasuredLink& link) {
    return over_sizes(link, kRowBytes, [&](std::size_t bytes) -> Result<double> {
      return time_us([&]() -> Result<void> {
        for (std::size_t done = 0; done < bytes; done += kRowBytes) {
          const std::size_t at = next_place(kRowBytes);
          std::byte* to = data_.data() + kLargest + at;
          copy_row(data_.data() + at, kRowBytes, {&to, 1}, Store::kCached, data_.data() + at + kRowBytes);
        }
        return {};
      });
    });
  }

  Result<void> sum(MeasuredLink& link) {
    std::array<float, kTerms> weight;
    weight.fill(0.5f);
    return over_sizes(link, kRowBytes * kTerms, [&](std::size_t bytes) -> Result<double> {
      return time_us([&]() -> Result<void> {
        std::array<const std::byte*, kTerms> terms;
        for (std::size_t done = 0; done < bytes; done += kRowBytes * kTerms) {
          for (const std::byte*& term : terms) term = data_.data() + next_place(kRowBytes);
          weighted_sum_row(DType::kBf16, {terms, {}, kRowBytes / 2}, weight, nullptr, data_.data() + kLargest + place_,
                           Store::kCached);
        }
        return {};
      });
    });
  }

  Result<void> alone(MeasuredLink& link) {
    const Rank first = nodes_.ranks_of(0)[0], second = nodes_.ranks_of(1)[0];
    return over_sizes(link, kSmallest, [&](std::size_t bytes) -> Result<double> {
      const std::int64_t start = now_ns();
      if (comm_.rank() == first) {
        MOETAX_TRY(transfer(comm_.send(second, out(bytes))));
        MOETAX_TRY(transfer(comm_.receive(second, in(bytes))));
      } else if (comm_.rank() == second) {
        MOETAX_TRY(transfer(comm_.receive(first, in(bytes))));
        MOETAX_TRY(transfer(comm_.send(first, out(bytes))));
      }
      return static_cast<double>(now_ns() - start) * 1e-3 / 2;
    });
  }

  Result<void> shared(MeasuredLink& link) {
    const int num = nodes_.num_nodes(), here = nodes_.node_of(comm_.rank());
    const bool on_rail = nodes_.place_of(comm_.rank()) < nodes_.num_rails();
    const Rank next = nodes_.counterpart(comm_.rank(), (here + 1) % num);
    const Rank before = nodes_.counterpart(comm_.rank(), (here + num - 1) % num);
    return over_sizes(link, kSmallest, [&](std::size_t bytes) -> Result<double> {
      if (!on_rail) return 0.0;
      return time_us([&]() -> Result<void> {
        const std::array messages{comm_.receive(before, in(bytes)), comm_.send(next, out(bytes))};
        MOETAX_TRY(comm_.finish(messages, operation(), deadline()));
        return {};
      });
    });
  }

 private:
  template <class Body>
  Result<void> over_sizes(MeasuredLink& link, std::size_t smallest, Body body) {
    for (std::size_t bytes = smallest; bytes <= kLargest; bytes *= 4) {
      MOETAX_ASSIGN(const double us, turns_.median_of_slowest(turns_for(bytes), [&] { return body(bytes); }));
      link.samples.push_back({static_cast<double>(bytes), us});
    }
    return {};
  }

  Result<double> ping(Rank peer, std::size_t bytes) {
    const std::int64_t start = now_ns();
    put(peer, bytes);
    MOETAX_TRY(comm_.wait(Channel::kRows, std::array{peer}, number_, operation(), deadline()));
    return static_cast<double>(now_ns() - start) * 1e-3 / 2;
  }
  Result<void> pong(Rank peer, std::size_t bytes) {
    MOETAX_TRY(comm_.wait(Channel::kRows, std::array{peer}, number_ + 1, operation(), deadline()));
    put(peer, bytes);
    return {};
  }
  void put(Rank peer, std::size_t bytes) {
    std::byte* to = window_.at(peer);
    copy_row(data_.data(), bytes, {&to, 1}, Store::kStreaming);
    finish_streaming();
    comm_.post(Channel::kRows, peer, ++number_);
  }

  Result<void> transfer(Message message) {
    MOETAX_TRY(comm_.finish(std::array{message}, operation(), deadline()));
    return {};
  }
  // An offset that leaves room for a row behind it.
  std::size_t next_place(std::size_t bytes) {
    place_ += bytes;
    if (place_ + 2 * bytes > kLargest) place_ = 0;
    return place_;
  }
  std::span<const std::byte> out(std::size_t bytes) const { return {data_.data(), bytes}; }
  std::span<std::byte> in(std::size_t bytes) const { return {data_.data() + kLargest, bytes}; }
  Operation operation() const { return {"calibrate", number_}; }
  Deadline deadline() const { return Deadline::in_seconds(deadline_s_); }

  Communicator& comm_;
  Turns turns_;
  Window window_;
  PageBuffer data_;  // what is sent, then room for what comes
  NodeMap nodes_;
  double deadline_s_;
  std::uint64_t number_ = 0;
  std::size_t place_ = 0;
};

}  // namespace

Result<void> measure_links(Communicator& comm, const CalibrateProgress& progress, MachineCosts& machine) {
  const Deadline deadline = Deadline::in_seconds(progress.deadline_s);
  MOETAX_ASSIGN(Turns turns, Turns::create(comm, progress.deadline_s));
  MOETAX_ASSIGN(Window window, comm.make_window("calibrate", kLargest, deadline));
  MOETAX_ASSIGN(PageBuffer data, PageBuffer::reserve(2 * kLargest));
  std::memset(data.data(), 1, data.size());
  LinkMeter meter(comm, std::move(turns), std::move(window), std::move(data), progress.deadline_s);
  const NodeMap nodes(comm);
  machine.ranks = comm.size();
  machine.nodes = nodes.num_nodes();
  const auto measure = [&](LinkClass link, std::string what, auto how) -> Result<void> {
    progress.say(fmt::format("measuring {}", what));
    machine.links.push_back({link, std::move(what), {}, {}});
    MOETAX_TRY((meter.*how)(machine.links.back()));
    machine.links.back().cost = fit_link(machine.links.back().samples);
    return {};
  };
  const bool has_mates = comm.size() > nodes.num_nodes();
  MOETAX_TRY(measure(LinkClass::kCopy, "rows copied in a rank's own memory, by all ranks at once", &LinkMeter::copy));
  MOETAX_TRY(measure(LinkClass::kSum, fmt::format("sums of {} rows, by all ranks at once", kTerms), &LinkMeter::sum));
  if (nodes.ranks_of(0).size() > 1) {
    MOETAX_TRY(measure(LinkClass::kMemory, "a copy into the memory of a rank of the same node", &LinkMeter::memory));
  }
  if (has_mates) {
    MOETAX_TRY(
        measure(LinkClass::kMemoryShared, "the same while all ranks of each node do it", &LinkMeter::memory_shared));
  }
  if (nodes.num_nodes() > 1) {
    MOETAX_TRY(measure(LinkClass::kLink, "a message to a rank of another node, alone", &LinkMeter::alone));
    MOETAX_TRY(measure(LinkClass::kLinkShared,
                       fmt::format("the same while all ranks of {} nodes send and receive", nodes.num_nodes()),
                       &LinkMeter::shared));
  }
  return {};
}

}  // namespace moetax::cli
