// A function that makes a handle is refused if it has nowhere to put it. `make sanitize` runs this
// under LeakSanitizer, which fails it if the handle is made all the same.
#include <string>
#include <vector>

#include "support/check.h"
#include "support/model_bytes.h"
#include "support/temporary_file.h"
#include "tsm/pool.h"
#include "tsm/tsm.h"

namespace {

TEST_CASE("a handle without a place") {
  const sample::Writer writer{sample::Spec()};
  const auto bytes = writer.file();
  const TemporaryFile file(bytes.data(), writer.size);
  const char* const path = file.path().c_str();
  tsm_model* model = nullptr;
  tsm_stream* stream = nullptr;
  CHECK(tsm_model_load(path, nullptr, &model) == TSM_OK);
  CHECK(tsm_stream_create(model, &stream) == TSM_OK);
  const auto refused = [](tsm_status status, const char* argument) {
    CHECK(status == TSM_INVALID_ARGUMENT);
    CHECK(tsm_last_error() == std::string(argument) + " is null; accepted: a valid pointer");
  };
  refused(tsm_model_load(path, nullptr, nullptr), "model");
  refused(tsm_stream_create(model, nullptr), "stream");
  refused(tsm_stream_fork(stream, nullptr), "copy");
  refused(tsm_pool_create(model, nullptr, nullptr), "pool");
  refused(tsm_cancel_create(nullptr), "cancel");
  tsm_stream_free(stream);
  tsm_model_free(model);
}

}  // namespace
