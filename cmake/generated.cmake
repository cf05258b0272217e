# Headers made from what CMake knows: the public moetax/version.h, and build_info.h for the command line's `info`.
configure_file("${PROJECT_SOURCE_DIR}/include/moetax/version.h.in" "${PROJECT_BINARY_DIR}/include/moetax/version.h" @ONLY)

set(MOETAX_COMPILER "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}")
configure_file("${PROJECT_SOURCE_DIR}/cmake/build_info.h.in" "${PROJECT_BINARY_DIR}/src/cli/build_info.h" @ONLY)
