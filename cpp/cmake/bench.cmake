# The parts of tsm-bench inside the core, and a benchmark program that needs no Python:
#   cmake --build build/dev --target stream_bench && build/dev/stream_bench MODEL.tsm int8
add_library(tsm_bench STATIC EXCLUDE_FROM_ALL cpp/bench/feed_loop.cc cpp/bench/read_floor.cc)
target_include_directories(tsm_bench PUBLIC cpp)
target_link_libraries(tsm_bench PUBLIC tsm_engine)
add_executable(stream_bench EXCLUDE_FROM_ALL cpp/bench/stream_bench.cc)
target_link_libraries(stream_bench PRIVATE tsm_bench)
