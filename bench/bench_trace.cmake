add_executable(bench_trace bench_trace.cpp)
target_link_libraries(bench_trace PRIVATE moetax fmt::fmt simdjson::simdjson)
target_compile_options(bench_trace PRIVATE -O3)
