// Started by the self test under MPI: what the ranks of a cluster can do together. Each rank prints a line
//   rank RANK of RANKS on HOST, SHARERS share memory, sum SUM
// where SUM is the all-reduced sum of all rank numbers, after sending its right neighbour as many bytes as the argument
// says.
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);

  MPI_Comm node = MPI_COMM_NULL;
  int sharers = 0;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node);
  MPI_Comm_size(node, &sharers);

  const int num_bytes = argc > 1 ? std::atoi(argv[1]) : 0;
  std::vector<char> out(static_cast<std::size_t>(num_bytes), static_cast<char>(rank));
  std::vector<char> in(out.size());
  const int left = (rank + ranks - 1) % ranks;
  MPI_Sendrecv(out.data(), num_bytes, MPI_CHAR, (rank + 1) % ranks, 0, in.data(), num_bytes, MPI_CHAR, left, 0,
               MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  const bool arrived = in == std::vector<char>(in.size(), static_cast<char>(left));

  int sum = 0;
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  char host[MPI_MAX_PROCESSOR_NAME + 1] = {};
  int length = 0;
  MPI_Get_processor_name(host, &length);
  std::printf("rank %d of %d on %s, %d share memory, sum %d\n", rank, ranks, host, sharers, sum);
  std::fprintf(stderr, "rank %d was here\n", rank);
  MPI_Finalize();
  return arrived ? 0 : 1;
}
