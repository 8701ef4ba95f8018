// Every allocation of streaming on a GPU fails once: see failing_calls.h. This covers host, device
// and pinned memory, CUDA streams and graphs.
#include "failing_calls.h"
#include "failing_cuda.h"

TEST_CASE("allocations on the host and the GPU that fail") {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("skipped: no CUDA device");
    return;
  }
  const auto test = [](tsm_dtype dtype, const sample::Cell& cell, const char* input,
                       size_t streams = 3) {
    calls::Setting setting = calls::setting_of(dtype, cell, input);
    setting.device = TSM_CUDA;
    setting.streams = streams;
    calls::test_setting(setting);
  };
  for (const tsm_dtype dtype : {TSM_FLOAT32, TSM_BFLOAT16, TSM_INT8}) {
    for (const char* input : {"tokens", "one_hot", "values"}) test(dtype, sample::plstm(), input);
    test(dtype, sample::lstm(), "tokens", 70);  // enough for the kernels for many streams
  }
  size_t free_bytes = 0, bytes = 0;
  CHECK(cudaMemGetInfo(&free_bytes, &bytes) == cudaSuccess);
  std::printf("device memory left at the end: %zu of %zu MiB\n", free_bytes >> 20, bytes >> 20);
  calls::check_points();
}
