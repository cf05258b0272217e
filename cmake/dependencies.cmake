# What moetax is built from. `./dev` installs all of it on Debian; elsewhere CMAKE_PREFIX_PATH says where it is.
find_package(fmt REQUIRED)
find_package(hwy REQUIRED)
find_package(dnnl REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(hwloc REQUIRED IMPORTED_TARGET hwloc)

# MPI is what benchmarks compare with; the library itself has no use for it.
find_package(MPI QUIET COMPONENTS CXX)
if(MPI_CXX_FOUND)
  set(MOETAX_MPI "version ${MPI_CXX_VERSION}, as the benchmarks' baseline")
else()
  set(MOETAX_MPI "not found when this was built (Debian: libopenmpi-dev openmpi-bin), so benchmarks lack that baseline")
endif()
message(STATUS "MPI: ${MOETAX_MPI}")
