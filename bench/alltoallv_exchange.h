// Dispatch and combine as one writes them with MPI, the peer that moetax is measured against. Rows are packed by
// destination, one row per (token, expert), exchanged by MPI_Alltoallv, and put into expert order; the way back is the
// mirror, and the weighted sum.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "exchange_case.h"
#include "moetax/base/clock.h"
#include "moetax/route/router.h"
#include "moetax/wire/rows.h"

namespace moetax::bench {

using Counts = std::vector<int>;

inline Counts offsets(const Counts& counts) {
  Counts at(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), at.begin(), 0);
  return at;
}

// What it exchanges. Ranks divide experts.
struct AlltoallvCase {
  int ranks = 2, experts = 64, topk = 6;
  std::int64_t hidden = 2048;
  std::size_t row_bytes() const { return static_cast<std::size_t>(hidden) * 2; }  // bf16
};

class AlltoallvExchange {
 public:
  AlltoallvExchange(const AlltoallvCase& shape, RoutingTable routing)
      : shape_(shape),
        local_(static_cast<std::size_t>(shape.experts / shape.ranks)),
        tokens_(routing.tokens()),
        routing_(std::move(routing)),
        slot_(static_cast<std::size_t>(tokens_ * shape.topk)),
        my_counts_(static_cast<std::size_t>(shape.experts)),
        counts_(my_counts_.size()),
        send_bytes_(static_cast<std::size_t>(shape.ranks)),
        receive_bytes_(send_bytes_.size()),
        send_(buffer(tokens_ * shape.topk)),
        receive_(buffer(shape.ranks * tokens_ * shape.topk)),
        rows_(buffer(shape.ranks * tokens_ * shape.topk)),
        results_(buffer(shape.ranks * tokens_ * shape.topk)),
        hidden_(buffer(tokens_)),
        out_(buffer(tokens_)) {}

  void refresh_tokens(std::uint16_t salt) {
    refresh(hidden_.data(), static_cast<std::size_t>(tokens_) * shape_.row_bytes(), salt);
  }
  void run_experts() {
    bench::run_experts(rows_.data(), results_.data(), static_cast<std::size_t>(received_rows_) * shape_.row_bytes());
  }

  void dispatch() {
    count();
    pack();
    swap_rows(send_.data(), send_bytes_, receive_.data(), receive_bytes_);
    for_each_group([&](int received, int grouped, int count) {
      std::memcpy(at(rows_, grouped), at(receive_, received), static_cast<std::size_t>(count) * shape_.row_bytes());
    });
  }

  void combine() {
    for_each_group([&](int received, int grouped, int count) {
      std::memcpy(at(receive_, received), at(results_, grouped), static_cast<std::size_t>(count) * shape_.row_bytes());
    });
    swap_rows(receive_.data(), receive_bytes_, send_.data(), send_bytes_);
    for (std::int64_t t = 0; t < tokens_; ++t) {
      const std::byte* rows[kMaxTopK];
      for (int k = 0; k < shape_.topk; ++k) rows[k] = at(send_, slot_[static_cast<std::size_t>(t * shape_.topk + k)]);
      weighted_sum_row(DType::kBf16, {{rows, static_cast<std::size_t>(shape_.topk)}, {}, shape_.hidden},
                       routing_.weight().row_span(t), nullptr, at(out_, static_cast<int>(t)), Store::kCached);
    }
  }

 private:
  PageBuffer buffer(std::int64_t rows) const {
    return std::move(PageBuffer::reserve(static_cast<std::size_t>(rows) * shape_.row_bytes())).value();
  }
  std::byte* at(const PageBuffer& rows, int idx) const {
    return rows.data() + static_cast<std::size_t>(idx) * shape_.row_bytes();
  }

  void count() {
    std::fill(my_counts_.begin(), my_counts_.end(), 0);
    const std::int32_t* expert = routing_.expert().data;
    for (std::int64_t i = 0; i < tokens_ * shape_.topk; ++i) ++my_counts_[static_cast<std::size_t>(expert[i])];
    // counts_[source][local expert]
    const auto local = static_cast<int>(local_);
    MPI_Alltoall(my_counts_.data(), local, MPI_INT, counts_.data(), local, MPI_INT, MPI_COMM_WORLD);
    for (std::size_t r = 0; r < send_bytes_.size(); ++r) {
      const auto row_bytes = static_cast<int>(shape_.row_bytes());
      send_bytes_[r] = row_bytes * std::accumulate(&my_counts_[r * local_], &my_counts_[r * local_] + local_, 0);
      receive_bytes_[r] = row_bytes * std::accumulate(&counts_[r * local_], &counts_[r * local_] + local_, 0);
    }
  }

  void pack() {
    Counts next = offsets(my_counts_);
    const std::int32_t* expert = routing_.expert().data;
    for (std::int64_t i = 0; i < tokens_ * shape_.topk; ++i) {
      const int slot = next[static_cast<std::size_t>(expert[i])]++;
      slot_[static_cast<std::size_t>(i)] = slot;
      std::memcpy(at(send_, slot), at(hidden_, static_cast<int>(i / shape_.topk)), shape_.row_bytes());
    }
  }

  static void swap_rows(const std::byte* from, const Counts& from_bytes, std::byte* to, const Counts& to_bytes) {
    MPI_Alltoallv(from, from_bytes.data(), offsets(from_bytes).data(), MPI_BYTE, to, to_bytes.data(),
                  offsets(to_bytes).data(), MPI_BYTE, MPI_COMM_WORLD);
  }

  // Rows come grouped by (source, expert); experts want them grouped by (expert, source).
  template <class Body>
  void for_each_group(Body body) {
    const Counts received = offsets(counts_);
    int grouped = 0;
    for (std::size_t e = 0; e < local_; ++e) {
      for (std::size_t r = 0; r < send_bytes_.size(); ++r) {
        const int count = counts_[r * local_ + e];
        body(received[r * local_ + e], grouped, count);
        grouped += count;
      }
    }
    received_rows_ = grouped;
  }

  AlltoallvCase shape_;
  std::size_t local_;  // experts of a rank
  std::int64_t tokens_;
  RoutingTable routing_;
  std::vector<int> slot_;  // [T, K] row in the send buffer
  Counts my_counts_, counts_;
  Counts send_bytes_, receive_bytes_;
  PageBuffer send_, receive_, rows_, results_, hidden_, out_;
  int received_rows_ = 0;
};

// The time of the slowest rank.
inline double slowest(double us) {
  double most = 0;
  MPI_Allreduce(&us, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return most;
}

template <class Body>
double time_us(Body body) {
  MPI_Barrier(MPI_COMM_WORLD);
  const std::int64_t start = now_ns();
  body();
  return slowest(static_cast<double>(now_ns() - start) * 1e-3);
}

}  // namespace moetax::bench
