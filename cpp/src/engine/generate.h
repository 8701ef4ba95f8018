// One call that generates for many streams: each step draws one token per stream, then feeds all of
// them at once.
#pragma once
#include <cstdint>

#include "core/split.h"
#include "engine/feed.h"

namespace tsm {

// Calls draw(i, weights, heap) for every i < count on the model's threads; weights and heap are
// scratch memory.
template <class F>
void draw_each(const Model::Impl& impl, Workspace& workspace, int64_t count, const F& draw) {
  const int64_t V = impl.config.output_size;
  workspace.weights.reserve(impl.pool.threads() * V);
  workspace.candidates.reserve(impl.pool.threads() * V);
  const auto some = [&](int64_t part, int64_t begin, int64_t end) {
    double* const weights = workspace.weights.data() + part * V;
    int64_t* const heap = workspace.candidates.data() + part * V;
    for (int64_t i = begin; i < end; ++i) draw(i, weights, heap);
  };
  split_parts(impl.pool, count, count * V * kWorkOfElement, some);
}

class Generator {
 public:
  // `own` is used for drawing tokens, `fed` for feeding them.
  Generator(const Model& model, const Model::Impl& impl, Workspace& own, Workspace& fed)
      : model_(model),
        impl_(impl),
        own_workspace_(own),
        feed_(model, impl, fed),
        fed_workspace_(fed) {}

  void run(const Generation* items, int64_t count, const Call& call);

 private:
  template <class F>
  bool accepted(int64_t item, const F& f) const;
  void check(const Generation& item) const;
  void put_back(int64_t k);
  void group(int64_t first, int64_t count);
  int64_t step(int64_t* active, int64_t count);
  void draw(const int64_t* active, int64_t count);
  int64_t drop(int64_t* active, int64_t count, int64_t k) const;

  const Model& model_;
  const Model::Impl& impl_;
  Workspace& own_workspace_;
  Feed feed_;
  Workspace& fed_workspace_;
  const Generation* items_ = nullptr;
  Call call_;
  int64_t group_ = 0;  // the first chunk of the current group
};

}  // namespace tsm
