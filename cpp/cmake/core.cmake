add_library(tsm_core STATIC
  cpp/src/core/buffer_cache.cc
  cpp/src/core/forks.cc
  cpp/src/core/ready_fd.cc
  cpp/src/core/thread_pool.cc
  cpp/src/core/unicode.cc
  cpp/src/core/files/crc32.cc
  cpp/src/core/files/file_checksum.cc
  cpp/src/core/files/file_kind.cc
  cpp/src/core/files/json.cc
  cpp/src/core/files/mapped_file.cc
  cpp/src/core/files/safetensors.cc)
target_include_directories(tsm_core PUBLIC cpp/src)
target_link_libraries(tsm_core PUBLIC tsm_flags Threads::Threads)
