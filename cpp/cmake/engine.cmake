add_library(tsm_engine STATIC
  cpp/src/engine/config.cc
  cpp/src/engine/elementwise.cc
  cpp/src/engine/feed.cc
  cpp/src/engine/head.cc
  cpp/src/engine/layer.cc
  cpp/src/engine/model.cc
  cpp/src/engine/nru.cc
  cpp/src/engine/program.cc
  cpp/src/engine/sampling.cc
  cpp/src/engine/state_blob.cc
  cpp/src/engine/stream.cc)
target_link_libraries(tsm_engine PUBLIC tsm_kernels)
