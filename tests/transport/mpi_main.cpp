#include "mpi_main.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>

namespace moetax::testing_mpi {

int num_processes() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

Result<std::vector<RankOutcome>> run_on(int ranks, const MpiOptions& options,
                                        const std::function<int(Communicator&)>& body) {
  int self = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &self);
  MPI_Comm part = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, self < ranks ? 0 : MPI_UNDEFINED, self, &part);
  // Rank, status, signal, given up; rank 0's are everybody's.
  std::vector<int> numbers(4 * static_cast<std::size_t>(ranks), -1);
  int refused = 0;
  if (part != MPI_COMM_NULL) {
    const auto outcomes = run_mpi(part, options, body);
    if (!outcomes) {
      std::fprintf(stderr, "rank %d: %s\n", self, outcomes.error().message.c_str());
      refused = 1;
    } else {
      for (std::size_t i = 0; i < outcomes->size(); ++i) {
        const RankOutcome& outcome = (*outcomes)[i];
        numbers[4 * i] = outcome.rank;
        numbers[4 * i + 1] = outcome.exit_status;
        numbers[4 * i + 2] = outcome.signal;
        numbers[4 * i + 3] = outcome.given_up ? 1 : 0;
      }
    }
    MPI_Comm_free(&part);
  }
  MPI_Bcast(numbers.data(), static_cast<int>(numbers.size()), MPI_INT, 0, MPI_COMM_WORLD);
  MPI_Allreduce(MPI_IN_PLACE, &refused, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  if (refused) return fail(ErrorCode::kInternal, "a rank could not join, see its message");
  std::vector<RankOutcome> outcomes(static_cast<std::size_t>(ranks));
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    outcomes[i] = {numbers[4 * i], numbers[4 * i + 1], numbers[4 * i + 2], numbers[4 * i + 3] != 0};
  }
  return outcomes;
}

}  // namespace moetax::testing_mpi

int main(int argc, char** argv) {
  int provided = 0, self = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &self);
  testing::InitGoogleTest(&argc, argv);
  // Outcomes are the same everywhere, so one process prints them.
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  if (self != 0) delete listeners.Release(listeners.default_result_printer());
  int failed = RUN_ALL_TESTS();
  MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Finalize();
  return failed;
}
