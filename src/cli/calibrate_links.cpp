#include "cli/calibrate_links.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "moetax/base/memory.h"
#include "moetax/transport/collectives.h"
#include "moetax/transport/node_map.h"
#include "moetax/wire/rows.h"

namespace moetax::cli {
namespace {

constexpr std::size_t kSmallest = 16, kLargest = std::size_t{16} << 20;

// Enough for a median, and about a second for all sizes of a link of 1 Gbit/s.
int repeats(std::size_t bytes) {
  return static_cast<int>(std::clamp<std::size_t>((std::size_t{2} << 20) / bytes, 3, 101));
}

double median(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

class LinkMeter {
 public:
  LinkMeter(Communicator& comm, Collectives& collectives, Window window, PageBuffer data, double deadline_s)
      : comm_(comm),
        collectives_(collectives),
        window_(std::move(window)),
        data_(std::move(data)),
        nodes_(comm),
        deadline_s_(deadline_s) {}

  Result<void> memory(MeasuredLink& link) {
    const auto near = nodes_.ranks_of(0);
    const Rank first = near[0], second = near[1];
    return over_sizes(link, [&](std::size_t bytes) -> Result<double> {
      if (comm_.rank() == first) return ping(second, bytes);
      if (comm_.rank() == second) MOETAX_TRY(pong(first, bytes));
      return 0.0;
    });
  }

  Result<void> alone(MeasuredLink& link) {
    const Rank first = nodes_.ranks_of(0)[0], second = nodes_.ranks_of(1)[0];
    return over_sizes(link, [&](std::size_t bytes) -> Result<double> {
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
    return over_sizes(link, [&](std::size_t bytes) -> Result<double> {
      if (!on_rail) return 0.0;
      const std::int64_t start = now_ns();
      const std::array messages{comm_.receive(before, in(bytes)), comm_.send(next, out(bytes))};
      MOETAX_TRY(comm_.finish(messages, operation(), deadline()));
      return static_cast<double>(now_ns() - start) * 1e-3;
    });
  }

 private:
  // body(bytes) is run by all ranks together and tells this rank's time; the slowest of them counts on rank 0.
  template <class Body>
  Result<void> over_sizes(MeasuredLink& link, Body body) {
    for (std::size_t bytes = kSmallest; bytes <= kLargest; bytes *= 4) {
      std::vector<double> us;
      for (int i = -1; i < repeats(bytes); ++i) {
        MOETAX_TRY(collectives_.barrier("calibrate", deadline()));
        MOETAX_ASSIGN(const double mine, body(bytes));
        std::vector<double> all(static_cast<std::size_t>(comm_.size()));
        MOETAX_TRY(collectives_.all_gather("calibrate times", std::as_bytes(std::span(&mine, 1)),
                                           std::as_writable_bytes(std::span(all)), deadline()));
        if (i >= 0) us.push_back(*std::max_element(all.begin(), all.end()));
      }
      link.samples.push_back({static_cast<double>(bytes), median(us)});
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
  std::span<const std::byte> out(std::size_t bytes) const { return {data_.data(), bytes}; }
  std::span<std::byte> in(std::size_t bytes) const { return {data_.data() + kLargest, bytes}; }
  Operation operation() const { return {"calibrate", number_}; }
  Deadline deadline() const { return Deadline::in_seconds(deadline_s_); }

  Communicator& comm_;
  Collectives& collectives_;
  Window window_;
  PageBuffer data_;  // what is sent, then room for what comes
  NodeMap nodes_;
  double deadline_s_;
  std::uint64_t number_ = 0;
};

}  // namespace

Result<std::vector<MeasuredLink>> measure_links(Communicator& comm, double deadline_s,
                                                const std::function<void(const std::string&)>& progress) {
  const Deadline deadline = Deadline::in_seconds(deadline_s);
  MOETAX_ASSIGN(Collectives collectives, Collectives::create(comm, deadline));
  MOETAX_ASSIGN(Window window, comm.make_window("calibrate", kLargest, deadline));
  MOETAX_ASSIGN(PageBuffer data, PageBuffer::reserve(2 * kLargest));
  std::memset(data.data(), 1, data.size());
  LinkMeter meter(comm, collectives, std::move(window), std::move(data), deadline_s);
  const NodeMap nodes(comm);
  std::vector<MeasuredLink> links;
  const auto measure = [&](const char* name, std::string what, auto how) -> Result<void> {
    progress(fmt::format("measuring {}", what));
    links.push_back({name, std::move(what), {}});
    return (meter.*how)(links.back());
  };
  if (nodes.ranks_of(0).size() > 1) {
    MOETAX_TRY(measure("memory", "a copy into the memory of a rank of the same node", &LinkMeter::memory));
  }
  if (nodes.num_nodes() > 1) {
    MOETAX_TRY(measure("link", "a message to a rank of another node, alone", &LinkMeter::alone));
    MOETAX_TRY(measure("link-shared",
                       fmt::format("the same while all ranks of {} nodes send and receive", nodes.num_nodes()),
                       &LinkMeter::shared));
  }
  if (comm.rank() != 0) links.clear();
  return links;
}

}  // namespace moetax::cli
