# A program outside the project builds and runs against what `cmake --install` puts in place: once through
# find_package(moetax), once through pkg-config.
set(prefix "${CMAKE_CURRENT_BINARY_DIR}/installed")
set(consumer_args -DSOURCE_DIR=${CMAKE_CURRENT_SOURCE_DIR}/consumer -DPREFIX=${prefix}
  -DLIBDIR=${CMAKE_INSTALL_LIBDIR} -DCXX=${CMAKE_CXX_COMPILER} "-DCXX_FLAGS=${MOETAX_SANITIZE_FLAGS}")

add_test(NAME project/install COMMAND ${CMAKE_COMMAND} -DBUILD_DIR=${PROJECT_BINARY_DIR} -DPREFIX=${prefix}
  -P "${CMAKE_CURRENT_SOURCE_DIR}/consumer/install.cmake")
add_test(NAME project/consumer_find_package COMMAND ${CMAKE_COMMAND} ${consumer_args}
  "-DGENERATOR=${CMAKE_GENERATOR}" -DPREFIX_PATH=${CMAKE_PREFIX_PATH}
  -DBUILD_DIR=${CMAKE_CURRENT_BINARY_DIR}/consumer -P "${CMAKE_CURRENT_SOURCE_DIR}/consumer/find_package.cmake")
add_test(NAME project/consumer_pkg_config COMMAND ${CMAKE_COMMAND} ${consumer_args}
  -DPROGRAM=${CMAKE_CURRENT_BINARY_DIR}/consumer_pkg_config -P "${CMAKE_CURRENT_SOURCE_DIR}/consumer/pkg_config.cmake")

set(consumers project/consumer_find_package project/consumer_pkg_config)
set_tests_properties(project/install PROPERTIES FIXTURES_SETUP moetax_installed)
set_tests_properties(${consumers} PROPERTIES FIXTURES_REQUIRED moetax_installed PASS_REGULAR_EXPRESSION
  "moetax ${moetax_VERSION}: token 0 goes to expert 0 and 5 more")
set_tests_properties(project/install ${consumers} PROPERTIES LABELS project TIMEOUT 120)

# The same of moetax::mpi.
if(MPI_CXX_FOUND)
  add_test(NAME project/consumer_mpi COMMAND ${CMAKE_COMMAND} ${consumer_args}
    -DSOURCE_DIR=${CMAKE_CURRENT_SOURCE_DIR}/consumer_mpi "-DGENERATOR=${CMAKE_GENERATOR}"
    -DPREFIX_PATH=${CMAKE_PREFIX_PATH} -DBUILD_DIR=${CMAKE_CURRENT_BINARY_DIR}/consumer_mpi
    -P "${CMAKE_CURRENT_SOURCE_DIR}/consumer/find_package.cmake")
  set_tests_properties(project/consumer_mpi PROPERTIES FIXTURES_REQUIRED moetax_installed LABELS project TIMEOUT 120
    PASS_REGULAR_EXPRESSION "rank 0 of 1 over mpi" ENVIRONMENT "ASAN_OPTIONS=detect_leaks=0")
else()
  add_test(NAME project/consumer_mpi COMMAND ${CMAKE_COMMAND} -E echo "skipped: MPI ${MOETAX_MPI}")
  set_tests_properties(project/consumer_mpi PROPERTIES LABELS project SKIP_REGULAR_EXPRESSION "^skipped:")
endif()
