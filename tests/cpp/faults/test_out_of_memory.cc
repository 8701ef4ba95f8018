// Every allocation on the CPU fails once: see failing_calls.h.
#include "failing_calls.h"
#include "failing_memory.h"

namespace {

void test(tsm_dtype dtype, const sample::Cell& cell, const char* input) {
  calls::test_setting(calls::setting_of(dtype, cell, input));
}

TEST_CASE("allocations that fail") {
  calls::Setting threaded = calls::setting_of(TSM_FLOAT32, sample::lstm(), "tokens");
  threaded.threads = 2;
  threaded.own_thread = true;
  calls::test_setting(threaded);
  test(TSM_FLOAT32, sample::leaky(), "one_hot");
  test(TSM_BFLOAT16, sample::lstm(), "values");
  test(TSM_INT8, sample::nru(), "tokens");
  calls::check_points();
}

TEST_CASE("every dtype with every kind of cell and input" * doctest::skip()) {  // make nightly
  for (const tsm_dtype dtype : {TSM_FLOAT32, TSM_BFLOAT16, TSM_INT8}) {
    for (const auto& cell : {sample::plstm(), sample::lstm(), sample::leaky(), sample::nru()}) {
      for (const char* input : {"tokens", "one_hot", "values"}) test(dtype, cell, input);
    }
  }
  calls::check_points();
}

}  // namespace
