# What moetax is built from. `./dev` installs all of it on Debian; elsewhere CMAKE_PREFIX_PATH says where it is.
find_package(fmt REQUIRED)
find_package(hwy REQUIRED)
find_package(dnnl REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(pugixml 1.13 REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(hwloc REQUIRED IMPORTED_TARGET hwloc)
# Its target has had a namespace since 0.8.
find_package(yaml-cpp REQUIRED)
set(MOETAX_YAML_CPP yaml-cpp)
if(TARGET yaml-cpp::yaml-cpp)
  set(MOETAX_YAML_CPP yaml-cpp::yaml-cpp)
endif()
# Used as headers alone, so that nothing has to be there at run time.
find_path(MOETAX_TOMLPLUSPLUS toml++/toml.h REQUIRED)

# MPI carries what goes between nodes (moetax::mpi and the command's plug-in), and is what benchmarks compare with. Without
# it everything else builds.
set(MPI_DETERMINE_LIBRARY_VERSION ON)
set(MPI_CXX_SKIP_MPICXX ON)
find_package(MPI QUIET COMPONENTS CXX)
if(MPI_CXX_FOUND)
  # "Open MPI v4.1.4, package: ...", "MPICH Version:	4.0.2 ..."
  string(REGEX MATCH "^[^,\n]*" MOETAX_MPI "${MPI_CXX_LIBRARY_VERSION_STRING}")
  string(REGEX REPLACE "[ \t]+" " " MOETAX_MPI "${MOETAX_MPI}")
  string(STRIP "${MOETAX_MPI}" MOETAX_MPI)
  if(NOT MOETAX_MPI)
    set(MOETAX_MPI "an implementation that does not say which")
  endif()
else()
  set(MOETAX_MPI "not found when this was built (Debian: libopenmpi-dev openmpi-bin)")
endif()
message(STATUS "MPI: ${MOETAX_MPI}")
