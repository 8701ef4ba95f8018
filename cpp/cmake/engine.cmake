add_library(tsm_engine STATIC
  cpp/src/engine/feed.cc
  cpp/src/engine/feed_check.cc
  cpp/src/engine/generate.cc
  cpp/src/engine/model.cc
  cpp/src/engine/overlap.cc
  cpp/src/engine/sampling.cc
  cpp/src/engine/state_blob.cc
  cpp/src/engine/stream.cc
  cpp/src/engine/cpu/device.cc
  cpp/src/engine/cpu/elementwise.cc
  cpp/src/engine/cpu/feed.cc
  cpp/src/engine/cpu/head.cc
  cpp/src/engine/cpu/layer.cc
  cpp/src/engine/cpu/nru.cc
  cpp/src/engine/pool/fill.cc
  cpp/src/engine/pool/pool.cc
  cpp/src/engine/pool/pool_requests.cc
  cpp/src/engine/pool/pool_streams.cc
  cpp/src/engine/pool/queue.cc
  cpp/src/engine/pool/step.cc
  cpp/src/engine/pool/stream_table.cc
  cpp/src/engine/pool/turns.cc
  cpp/src/engine/file/config.cc
  cpp/src/engine/file/program.cc
  cpp/src/engine/text/dictionary.cc
  cpp/src/engine/text/review.cc
  cpp/src/engine/text/text.cc)
target_link_libraries(tsm_engine PUBLIC tsm_kernels)

# Provides make_cuda_device (engine/cuda/make_device.h), with or without CUDA. This library and the
# engine depend on each other, which is allowed for static libraries.
add_library(tsm_no_cuda STATIC cpp/src/engine/cuda/no_cuda.cc)
target_link_libraries(tsm_no_cuda PUBLIC tsm_kernels)
if(TSM_WITH_CUDA)
  find_package(CUDAToolkit REQUIRED)
  add_library(tsm_engine_cuda STATIC
    cpp/src/engine/cuda/device.cc
    cpp/src/engine/cuda/feed.cc
    cpp/src/engine/cuda/head.cc
    cpp/src/engine/cuda/layer.cc
    cpp/src/engine/cuda/matrix.cc)
  target_link_libraries(tsm_engine_cuda PUBLIC tsm_engine tsm_stream_cuda CUDA::cudart_static)
  target_link_libraries(tsm_engine PUBLIC tsm_engine_cuda)
else()
  target_link_libraries(tsm_engine PUBLIC tsm_no_cuda)
endif()
