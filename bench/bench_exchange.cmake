add_executable(bench_exchange bench_exchange.cpp)
target_link_libraries(bench_exchange PRIVATE moetax fmt::fmt)
find_package(MPI COMPONENTS CXX)
if(MPI_CXX_FOUND)
  # Started by bench_exchange.
  add_executable(exchange_by_alltoallv exchange_by_alltoallv.cpp)
  target_link_libraries(exchange_by_alltoallv PRIVATE moetax MPI::MPI_CXX)
  add_dependencies(bench_exchange exchange_by_alltoallv)
  target_compile_definitions(bench_exchange PRIVATE MOETAX_MPIRUN="${MPIEXEC_EXECUTABLE}"
    MOETAX_MPI_PEER="$<TARGET_FILE:exchange_by_alltoallv>")
else()
  message(STATUS "bench_exchange: MPI not found (Debian: libopenmpi-dev); the comparison with it is left out")
endif()
