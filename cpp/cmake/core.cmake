add_library(tsm_core STATIC
  cpp/src/core/crc32.cc
  cpp/src/core/file_checksum.cc
  cpp/src/core/file_kind.cc
  cpp/src/core/json.cc
  cpp/src/core/mapped_file.cc
  cpp/src/core/recycled.cc
  cpp/src/core/safetensors.cc
  cpp/src/core/thread_pool.cc
  cpp/src/core/unicode.cc)
target_include_directories(tsm_core PUBLIC cpp/src)
target_link_libraries(tsm_core PUBLIC tsm_flags Threads::Threads)
