add_executable(bench_expert bench_expert.cpp read_memory.cpp)
target_link_libraries(bench_expert PRIVATE moetax fmt::fmt DNNL::dnnl hwy::hwy OpenMP::OpenMP_CXX)
target_include_directories(bench_expert PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
