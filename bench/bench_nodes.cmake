# bench_nodes makes a cluster on this machine and starts exchange_over_nodes on it.
if(TARGET moetax_mpi)
  add_executable(exchange_over_nodes exchange_over_nodes.cpp)
  target_link_libraries(exchange_over_nodes PRIVATE moetax moetax_mpi fmt::fmt)
  add_dependencies(exchange_over_nodes moetax_cli)
  set(script "${CMAKE_CURRENT_BINARY_DIR}/bench_nodes")
  file(WRITE "${script}" "#!/bin/sh\nexec python3 -B '${CMAKE_CURRENT_SOURCE_DIR}/nodes.py' '${CMAKE_CURRENT_BINARY_DIR}/exchange_over_nodes' '${CMAKE_BINARY_DIR}/src/cli/moetax' \"$@\"\n")
  file(CHMOD "${script}" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
endif()
