// The peer of bench_exchange, started by it under mpirun. Prints the median time of a dispatch plus a combine in us.
#include <cstdio>
#include <cstdlib>

#include "alltoallv_exchange.h"

namespace moetax::bench {
namespace {

void run(std::int64_t tokens) {
  Rank rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  AlltoallvExchange exchange({kRanks, kExperts, kTopK, kHidden}, uniform_routing(rank, tokens));
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
