# Compiles through ccache where it is installed, unless the caller chose a launcher.
find_program(MOETAX_CCACHE ccache)
mark_as_advanced(MOETAX_CCACHE)
if(PROJECT_IS_TOP_LEVEL AND MOETAX_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${MOETAX_CCACHE}")
endif()
