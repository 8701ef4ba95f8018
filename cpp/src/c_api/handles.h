// What the handles point to, and the caller's structs as the engine's.
#pragma once
#include <memory>
#include <vector>

#include "c_api/guard.h"
#include "core/cancel.h"
#include "core/leases.h"
#include "engine/stream.h"

namespace tsm::c_api {

// What a call on many streams is translated into.
struct Batch {
  std::vector<Chunk> chunks;
  std::vector<Generation> generations;
  std::vector<Failure> failures;
};

}  // namespace tsm::c_api

struct tsm_model {
  std::shared_ptr<const tsm::Model> model;
  mutable tsm::Leases<tsm::c_api::Batch> batches;  // as many as calls ever ran at once
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
// Checks what the engine cannot: that outputs have room, and numbers that stand for names.
Chunk engine_chunk(const Model& model, const tsm_chunk& chunk);
Generation engine_generation(Stream& stream, int64_t n, const tsm_sampling* sampling,
                             int64_t* tokens);

}  // namespace tsm::c_api
