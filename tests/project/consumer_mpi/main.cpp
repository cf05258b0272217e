// A program outside the project whose ranks MPI starts, or of one rank when nobody does.
#include <moetax/transport/mpi.h>
#include <unistd.h>

#include <cstdio>
#include <string>

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  const auto outcomes = moetax::run_mpi(MPI_COMM_WORLD, {}, [](moetax::Communicator& world) {
    std::printf("rank %d of %d over %s\n", world.rank(), world.size(), std::string(world.transport()).c_str());
    return 0;
  });
  if (!outcomes) _exit(5);
  MPI_Finalize();
  return 0;
}
