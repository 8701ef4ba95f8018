// What a model is made of. Only the engine's own files see it.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "core/mapped_file.h"
#include "core/thread_pool.h"
#include "engine/config.h"
#include "engine/device.h"
#include "engine/embedding.h"
#include "engine/head.h"
#include "engine/layer.h"
#include "engine/model.h"
#include "engine/workspace.h"

namespace tsm {

struct Model::Parts {
  Parts(MappedFile mapped, const LoadOptions& options);

  const MappedFile mapped;
  const ModelFile file;
  const Level& level;
  const Weights weights;
  const StateLayout states;
  std::vector<LayerInfo> infos;
  std::unique_ptr<Device> device;  // null: the CPU, and what follows
  std::vector<std::unique_ptr<Layer>> layers;
  std::unique_ptr<Head> head;
  Embedding embedding;
  bool takes_dt = true;
  double shortest_dt = 0;
  // The only things that change: who works, and in what memory.
  mutable ThreadPool pool;
  mutable Leases<Workspace> workspaces;

  const Config& config() const { return file.config(); }

 private:
  void load_cpu();
};

}  // namespace tsm
