# What `cmake --install` puts in place, and how find_package(moetax) and pkg-config find it again.
include(CMakePackageConfigHelpers)

set(MOETAX_CMAKE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/moetax")
install(TARGETS moetax EXPORT moetaxTargets ARCHIVE FILE_SET HEADERS)
install(TARGETS moetax_cli RUNTIME)
if(MPI_CXX_FOUND)
  install(TARGETS moetax_transport_mpi LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}/moetax")
  # A set of its own, so that those who do not link moetax::mpi need no MPI.
  install(TARGETS moetax_mpi EXPORT moetaxMpiTargets ARCHIVE FILE_SET HEADERS)
  install(EXPORT moetaxMpiTargets NAMESPACE moetax:: DESTINATION "${MOETAX_CMAKE_DIR}")
endif()
install(EXPORT moetaxTargets NAMESPACE moetax:: DESTINATION "${MOETAX_CMAKE_DIR}")

configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/moetaxConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/moetaxConfig.cmake" INSTALL_DESTINATION "${MOETAX_CMAKE_DIR}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/moetaxConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/moetaxConfig.cmake" "${PROJECT_BINARY_DIR}/moetaxConfigVersion.cmake"
  DESTINATION "${MOETAX_CMAKE_DIR}")

# Two passes: @...@ from variables now, $<...> from targets when the build is generated.
file(RELATIVE_PATH MOETAX_PC_TO_PREFIX "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
configure_file("${PROJECT_SOURCE_DIR}/cmake/moetax.pc.in" "${PROJECT_BINARY_DIR}/moetax.pc.gen" @ONLY)
file(GENERATE OUTPUT "${PROJECT_BINARY_DIR}/moetax.pc" INPUT "${PROJECT_BINARY_DIR}/moetax.pc.gen")
install(FILES "${PROJECT_SOURCE_DIR}/schema/bill.schema.json" "${PROJECT_SOURCE_DIR}/schema/machine.schema.json"
  "${PROJECT_SOURCE_DIR}/schema/findings.schema.json"
  DESTINATION "${CMAKE_INSTALL_DATADIR}/moetax")
install(FILES "${PROJECT_SOURCE_DIR}/README.md" "${PROJECT_SOURCE_DIR}/LICENSE" "${PROJECT_SOURCE_DIR}/docs/bill.md"
  "${PROJECT_SOURCE_DIR}/docs/exchange.md" "${PROJECT_SOURCE_DIR}/docs/calibrate.md" "${PROJECT_SOURCE_DIR}/docs/topology.md"
  "${PROJECT_SOURCE_DIR}/docs/doctor.md" "${PROJECT_SOURCE_DIR}/docs/analyze.md"
  DESTINATION "${CMAKE_INSTALL_DOCDIR}")
install(FILES "${PROJECT_BINARY_DIR}/moetax.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
