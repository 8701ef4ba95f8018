// The types behind the handles, and the conversion of the caller's structs to the engine's.
#pragma once
#include <memory>
#include <vector>

#include "c_api/guard.h"
#include "core/cancel.h"
#include "core/leases.h"
#include "engine/stream.h"

namespace tsm::c_api {

// A call on many streams, translated for the engine.
struct Batch {
  std::vector<Chunk> chunks;
  std::vector<Generation> generations;
  std::vector<Failure> failures;
};

}  // namespace tsm::c_api

struct tsm_model {
  std::shared_ptr<const tsm::Model> model;
  mutable tsm::Leases<tsm::c_api::Batch> batches;  // one per concurrent call
};

struct tsm_cancel {
  tsm::CancelFlag flag;
};

namespace tsm::c_api {

inline const Model& model_of(const tsm_model* model) { return *given(model, "model")->model; }
inline Stream& stream_of(tsm_stream* stream) {
  return *reinterpret_cast<Stream*>(given(stream, "stream"));
}

TokenType token_type_of(int32_t type);  // a tsm_token_type
// Checks what the engine cannot: that the output buffers are large enough, and that enum values are
// valid.
Chunk engine_chunk(const Model& model, const tsm_chunk& chunk);
Generation engine_generation(Stream& stream, int64_t n, const tsm_sampling* sampling,
                             int64_t* tokens);

}  // namespace tsm::c_api
