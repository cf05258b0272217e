# moetax_room(NAME SOURCES...): one room of the library, as an object library whose link edges come from layers.txt.
# moetax_test(ROOM NAME SOURCES... [LIBS ...]): a GoogleTest program of tests/<room>/, one CTest entry per program.
# moetax_mpi_test(ROOM NAME RANKS SOURCES...): one whose ranks an MPI launcher starts; it brings its own main. Skipped with
# the reason where there is no MPI.

file(STRINGS "${PROJECT_SOURCE_DIR}/layers.txt" MOETAX_LAYERS REGEX "^[0-9]")
set_property(DIRECTORY "${PROJECT_SOURCE_DIR}" APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/layers.txt")

function(moetax_room_deps room out)
  foreach(line IN LISTS MOETAX_LAYERS)
    if(line MATCHES "^[0-9]+ +${room} *:(.*)$")
      string(STRIP "${CMAKE_MATCH_1}" deps)
      separate_arguments(deps)
      set(${out} ${deps} PARENT_SCOPE)
      return()
    endif()
  endforeach()
  message(FATAL_ERROR "room '${room}' is not in layers.txt")
endfunction()

function(moetax_room room)
  add_library(moetax_${room} OBJECT ${ARGN})
  target_include_directories(moetax_${room} PUBLIC
    "${PROJECT_SOURCE_DIR}/include" PRIVATE "${PROJECT_SOURCE_DIR}/src")
  target_link_libraries(moetax_${room} PUBLIC moetax_options)
  moetax_room_deps(${room} deps)
  foreach(dep IN LISTS deps)
    target_link_libraries(moetax_${room} PUBLIC moetax_${dep})
  endforeach()
  set_property(GLOBAL APPEND PROPERTY MOETAX_ROOMS ${room})
endfunction()

function(moetax_test room name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "LIBS" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/tests")
  target_link_libraries(${name} PRIVATE moetax GTest::gtest GTest::gmock GTest::gtest_main ${ARG_LIBS})
  target_compile_definitions(${name} PRIVATE MOETAX_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  add_test(NAME ${room}/${name} COMMAND ${name})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  set_tests_properties(${room}/${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS ${room})
endfunction()

function(moetax_mpi_test room name ranks)
  # Its ranks are processes, between which the thread sanitizer sees nothing; what it finds is MPI's own.
  if(MOETAX_SANITIZE STREQUAL "thread")
    return()
  endif()
  if(NOT MPI_CXX_FOUND)
    add_test(NAME ${room}/${name} COMMAND ${CMAKE_COMMAND} -E echo "skipped: MPI ${MOETAX_MPI}")
    set_tests_properties(${room}/${name} PROPERTIES LABELS ${room} SKIP_REGULAR_EXPRESSION "^skipped:")
    return()
  endif()
  add_executable(${name} ${ARGN})
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/tests")
  target_link_libraries(${name} PRIVATE moetax_mpi GTest::gtest GTest::gmock)
  add_test(NAME ${room}/${name} COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} $<TARGET_FILE:${name}>)
  # Open MPI asks to be told that there are more ranks than cores and that root may; its own leaks are its own.
  set_tests_properties(${room}/${name} PROPERTIES LABELS ${room} TIMEOUT 300 PROCESSORS 2 ENVIRONMENT
    "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;OMPI_MCA_rmaps_base_oversubscribe=1;OMPI_MCA_mpi_yield_when_idle=1;ASAN_OPTIONS=detect_leaks=0")
endfunction()
