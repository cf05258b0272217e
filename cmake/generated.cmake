# Headers made from what CMake knows: the public moetax/version.h, and build_info.h for the command line's `info`.
configure_file("${PROJECT_SOURCE_DIR}/include/moetax/version.h.in" "${PROJECT_BINARY_DIR}/include/moetax/version.h" @ONLY)

set(MOETAX_COMPILER "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}")
file(RELATIVE_PATH MOETAX_PLUGIN_FOLDER "/prefix/${CMAKE_INSTALL_BINDIR}" "/prefix/${CMAKE_INSTALL_LIBDIR}/moetax")
if(MPI_CXX_FOUND)
  set(MOETAX_HAS_MPI true)
else()
  set(MOETAX_HAS_MPI false)
endif()
configure_file("${PROJECT_SOURCE_DIR}/cmake/build_info.h.in" "${PROJECT_BINARY_DIR}/src/cli/build_info.h" @ONLY)
