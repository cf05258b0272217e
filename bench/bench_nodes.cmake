# Started under an MPI launcher: see its first lines.
if(TARGET moetax_mpi)
  add_executable(bench_nodes bench_nodes.cpp)
  target_link_libraries(bench_nodes PRIVATE moetax moetax_mpi fmt::fmt)
endif()
