add_executable(bench_router bench_router.cpp)
target_link_libraries(bench_router PRIVATE moetax fmt::fmt)
target_compile_options(bench_router PRIVATE -O3)
