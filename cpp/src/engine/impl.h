// What a model is made of. Only the engine's own files see it.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/first_use.h"
#include "core/leases.h"
#include "core/thread_pool.h"
#include "engine/cpu/embedding.h"
#include "engine/cpu/head.h"
#include "engine/cpu/layer.h"
#include "engine/cpu/workspace.h"
#include "engine/device/device.h"
#include "engine/file/config.h"
#include "engine/model.h"
#include "engine/text/text.h"

namespace tsm {

struct Model::Impl {
  // Takes a copy of what it needs: the file is not read again.
  Impl(const ModelFile& file, const LoadOptions& options);
  ~Impl() { delete text.peek(); }

  const Config config;
  const std::map<std::string, std::string> assets;  // the byte tensors
  const Isa& isa;
  const Weights weights;
  const StateLayout states;
  std::vector<LayerInfo> infos;
  std::unique_ptr<Device> device;  // null: the CPU, and what follows
  std::vector<std::unique_ptr<CpuLayer>> layers;
  std::unique_ptr<CpuHead> head;
  Embedding embedding;
  bool takes_dt = true;
  double shortest_dt = 0;
  // The only things that change: who works, and in what memory.
  mutable ThreadPool pool;
  mutable Leases<Workspace> workspaces;
  mutable FirstUse<const Text> text;

 private:
  void load_cpu(const ModelFile& file);
};

}  // namespace tsm
