# bench_overlap makes a cluster on this machine and starts moetax on it.
if(TARGET moetax_transport_mpi)
  set(script "${CMAKE_CURRENT_BINARY_DIR}/bench_overlap")
  file(WRITE "${script}" "#!/bin/sh\nexec python3 -B '${CMAKE_CURRENT_SOURCE_DIR}/overlap.py' '${CMAKE_BINARY_DIR}/src/cli/moetax'\n")
  file(CHMOD "${script}" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
endif()
