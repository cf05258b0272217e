// The peer of bench_exchange, started by it under mpirun: dispatch and combine as one writes them with MPI. Rows are
// packed by destination, one row per (token, expert), exchanged by MPI_Alltoallv, and put into expert order; the way
// back is the mirror, and the weighted sum. Prints the median time of a dispatch plus a combine in us.
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "exchange_case.h"
#include "moetax/base/clock.h"
#include "moetax/wire/rows.h"

namespace moetax::bench {
namespace {

using Counts = std::vector<int>;

Counts offsets(const Counts& counts) {
  Counts at(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), at.begin(), 0);
  return at;
}

class MpiExchange {
 public:
  MpiExchange(Rank rank, std::int64_t tokens)
      : tokens_(tokens),
        routing_(uniform_routing(rank, tokens)),
        slot_(static_cast<std::size_t>(tokens * kTopK)),
        send_(buffer(tokens * kTopK)),
        receive_(buffer(kRanks * tokens * kTopK)),
        rows_(buffer(kRanks * tokens * kTopK)),
        results_(buffer(kRanks * tokens * kTopK)),
        hidden_(buffer(tokens)),
        out_(buffer(tokens)) {}

  void refresh_tokens(std::uint16_t salt) {
    refresh(hidden_.data(), static_cast<std::size_t>(tokens_) * kRowBytes, salt);
  }
  void run_experts() {
    bench::run_experts(rows_.data(), results_.data(), static_cast<std::size_t>(received_rows_) * kRowBytes);
  }

  void dispatch() {
    count();
    pack();
    swap_rows(send_.data(), send_bytes_, receive_.data(), receive_bytes_);
    for_each_group([&](int received, int grouped, int count) {
      std::memcpy(at(rows_, grouped), at(receive_, received), static_cast<std::size_t>(count) * kRowBytes);
    });
  }

  void combine() {
    for_each_group([&](int received, int grouped, int count) {
      std::memcpy(at(receive_, received), at(results_, grouped), static_cast<std::size_t>(count) * kRowBytes);
    });
    swap_rows(receive_.data(), receive_bytes_, send_.data(), send_bytes_);
    for (std::int64_t t = 0; t < tokens_; ++t) {
      const std::byte* rows[kTopK];
      for (int k = 0; k < kTopK; ++k) rows[k] = at(send_, slot_[static_cast<std::size_t>(t * kTopK + k)]);
      weighted_sum_row(DType::kBf16, {rows, {}, kHidden}, routing_.weight().row_span(t), nullptr,
                       at(out_, static_cast<int>(t)), Store::kCached);
    }
  }

 private:
  static constexpr int kLocal = kExperts / kRanks;

  static PageBuffer buffer(std::int64_t rows) {
    return std::move(PageBuffer::reserve(static_cast<std::size_t>(rows) * kRowBytes)).value();
  }
  static std::byte* at(const PageBuffer& rows, int idx) {
    return rows.data() + static_cast<std::size_t>(idx) * kRowBytes;
  }

  void count() {
    my_counts_.assign(kExperts, 0);
    const std::int32_t* expert = routing_.expert().data;
    for (std::int64_t i = 0; i < tokens_ * kTopK; ++i) ++my_counts_[static_cast<std::size_t>(expert[i])];
    // counts_[source][local expert]
    MPI_Alltoall(my_counts_.data(), kLocal, MPI_INT, counts_.data(), kLocal, MPI_INT, MPI_COMM_WORLD);
    for (std::size_t r = 0; r < kRanks; ++r) {
      const auto row_bytes = static_cast<int>(kRowBytes);
      send_bytes_[r] = row_bytes * std::accumulate(&my_counts_[r * kLocal], &my_counts_[r * kLocal] + kLocal, 0);
      receive_bytes_[r] = row_bytes * std::accumulate(&counts_[r * kLocal], &counts_[r * kLocal] + kLocal, 0);
    }
  }

  void pack() {
    Counts next = offsets(my_counts_);
    const std::int32_t* expert = routing_.expert().data;
    for (std::int64_t i = 0; i < tokens_ * kTopK; ++i) {
      const int slot = next[static_cast<std::size_t>(expert[i])]++;
      slot_[static_cast<std::size_t>(i)] = slot;
      std::memcpy(at(send_, slot), at(hidden_, static_cast<int>(i / kTopK)), kRowBytes);
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
    for (std::size_t e = 0; e < kLocal; ++e) {
      for (std::size_t r = 0; r < kRanks; ++r) {
        const int count = counts_[r * kLocal + e];
        body(received[r * kLocal + e], grouped, count);
        grouped += count;
      }
    }
    received_rows_ = grouped;
  }

  std::int64_t tokens_;
  RoutingTable routing_;
  std::vector<int> slot_;  // [T, K] row in the send buffer
  Counts my_counts_ = Counts(kExperts), counts_ = Counts(kExperts);
  Counts send_bytes_ = Counts(kRanks), receive_bytes_ = Counts(kRanks);
  PageBuffer send_, receive_, rows_, results_, hidden_, out_;
  int received_rows_ = 0;
};

// The time of the slower rank.
double slower(double us) {
  double most = 0;
  MPI_Allreduce(&us, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return most;
}

template <class Body>
double time_us(Body body) {
  MPI_Barrier(MPI_COMM_WORLD);
  const std::int64_t start = now_ns();
  body();
  return slower(static_cast<double>(now_ns() - start) * 1e-3);
}

void run(std::int64_t tokens) {
  Rank rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MpiExchange exchange(rank, tokens);
  std::vector<double> us;
  for (int i = -2; i < repeats(tokens); ++i) {
    exchange.refresh_tokens(static_cast<std::uint16_t>(i));
    const double there = time_us([&] { exchange.dispatch(); });
    exchange.run_experts();
    const double back = time_us([&] { exchange.combine(); });
    if (i >= 0) us.push_back(there + back);
  }
  if (rank == 0) std::printf("mpi %.3f\n", median(us));
}

}  // namespace
}  // namespace moetax::bench

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc == 2) moetax::bench::run(std::atoll(argv[1]));
  MPI_Finalize();
  return argc == 2 ? 0 : 2;
}
