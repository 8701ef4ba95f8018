// The parts of a model, private to the engine.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/first_use.h"
#include "core/leases.h"
#include "core/thread_pool.h"
#include "engine/device/device.h"
#include "engine/file/config.h"
#include "engine/model.h"
#include "engine/state_blob.h"
#include "engine/text/text.h"
#include "engine/workspace.h"

namespace tsm {

struct Model::Impl {
  // Copies what it needs; the file is not read again.
  Impl(const ModelFile& file, const LoadOptions& options);
  ~Impl() { delete text.peek(); }

  const Config config;
  const std::map<std::string, std::string> assets;  // the byte tensors
  const Isa& isa;
  const Weights weights;
  const StateLayout states;
  const StateParts parts;  // of the states, in the order of a saved stream
  std::vector<LayerInfo> infos;
  const DeviceKind kind;
  bool takes_dt = true;
  double shortest_dt = 0;
  // The only parts that change: threads and workspaces.
  mutable ThreadPool pool;
  std::unique_ptr<Device> device;
  mutable Leases<Workspace> workspaces;
  mutable FirstUse<const Text> text;
};

}  // namespace tsm
