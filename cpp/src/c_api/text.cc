// Text in the C API: encode and decode.
#include "engine/text/text.h"

#include <algorithm>
#include <string>

#include "c_api/guard.h"
#include "c_api/handles.h"

namespace tsm::c_api {
namespace {

// Sets *count to the size, and copies the result if there is a buffer and it is large enough.
template <class Made, class T>
void give(const Made& made, T* out, size_t room, const char* unit, size_t* count) {
  *count = made.size();
  if (!out) return;
  require(room >= made.size(), "room = " + std::to_string(room) + " " + unit +
                                   "; accepted: at least " + std::to_string(made.size()));
  std::copy(made.begin(), made.end(), out);
}

}  // namespace
}  // namespace tsm::c_api

using namespace tsm;
using namespace tsm::c_api;

extern "C" {

tsm_status tsm_model_encode(const tsm_model* model, const char* text, size_t bytes, int64_t* tokens,
                            size_t room, size_t* count) {
  return guard([&] {
    const Model& m = model_of(model);
    if (bytes > 0) given(text, "text");
    given(count, "count");
    const std::string own(text ? text : "", bytes);  // a copy that no other thread can change
    give(m.text().encode(own), tokens, room, "tokens", count);
  });
}

tsm_status tsm_model_decode(const tsm_model* model, const int64_t* tokens, size_t count, char* text,
                            size_t room, size_t* bytes) {
  return guard([&] {
    const Model& m = model_of(model);
    if (count > 0) given(tokens, "tokens");
    given(bytes, "bytes");
    give(m.text().decode(tokens, count), text, room, "bytes", bytes);
  });
}

}  // extern "C"
