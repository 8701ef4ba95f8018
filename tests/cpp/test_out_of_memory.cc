// Allocations on the CPU that fail, each once: failing_calls.h.
// test_out_of_memory all: every dtype with every kind of cell and input, in `make nightly`.
#include "failing_calls.h"
#include "failing_memory.h"

int main(int argc, char** argv) {
  const bool everything = argc > 1 && std::string(argv[1]) == "all";
  const auto test = [](tsm_dtype dtype, const sample::Cell& cell, const char* input) {
    calls::test_setting(calls::setting_of(dtype, cell, input));
  };
  calls::Setting threaded = calls::setting_of(TSM_FLOAT32, sample::lstm(), "tokens");
  threaded.threads = 2;
  threaded.own_thread = true;
  calls::test_setting(threaded);
  test(TSM_FLOAT32, sample::leaky(), "one_hot");
  test(TSM_BFLOAT16, sample::lstm(), "values");
  test(TSM_INT8, sample::nru(), "tokens");
  if (everything) {
    for (const tsm_dtype dtype : {TSM_FLOAT32, TSM_BFLOAT16, TSM_INT8}) {
      for (const auto& cell : {sample::plstm(), sample::lstm(), sample::leaky(), sample::nru()}) {
        for (const char* input : {"tokens", "one_hot", "values"}) test(dtype, cell, input);
      }
    }
  }
  return calls::result();
}
