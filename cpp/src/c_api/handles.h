// What the handles of the C API are.
#pragma once
#include <memory>
#include <vector>

#include "c_api/guard.h"
#include "engine/model.h"
#include "engine/workspace.h"

struct tsm_model {
  std::shared_ptr<const tsm::Model> model;
  // Of feed_many, each grown to the largest call that used it.
  mutable tsm::Leases<std::vector<tsm::Chunk>> batches{};
};

namespace tsm::c_api {

inline const Model& model_of(const tsm_model* model) { return *given(model, "model")->model; }

}  // namespace tsm::c_api
