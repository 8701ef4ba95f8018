#include "engine/cuda/layer.h"

#include <algorithm>

#include "core/aligned.h"
#include "core/error.h"
#include "engine/file/matrix_row.h"
#include "kernels/cpu/isa.h"

namespace tsm::cuda {
namespace {

const CudaCell* compiled(const LayerConfig& config, int64_t number) {
  const CudaCell* cell = config.program ? find_cuda_cell(config.program->hash()) : nullptr;
  if (cell && config.runs_as(*cell)) return cell;
  std::string names;
  for (int i = 0; i < active_isa().cell_count; ++i)
    names += (i ? ", " : "") + std::string(active_isa().cells[i].name);
  throw Error("device = 'cuda': layer " + std::to_string(number) + " has the cell '" + config.cell +
              "', which is not compiled for it; accepted: " + names + " (or device = 'cpu')");
}

// The prepared vectors [Q,H] that the cell's step reads.
std::vector<float> prepared(const ModelFile& file, const LayerConfig& config,
                            const std::string& name) {
  const int64_t H = config.hidden_size;
  std::vector<float> vectors;
  for (const std::string& vector : config.names.vectors) {
    const float* values = file.vector(name + "vectors." + vector, H);
    vectors.insert(vectors.end(), values, values + H);
  }
  const CellForward<float>* const cell =
      find_cell(active_isa().cells, active_isa().cell_count, config.program->hash());
  if (!cell) return {};
  Aligned<float> padded_vectors(int64_t(vectors.size()));
  std::copy(vectors.begin(), vectors.end(), padded_vectors.data());
  Aligned<float> ready(cell->prepared * H);
  cell->prepare(H, padded_vectors.data(), config.constants.data(), ready.data());
  return {ready.data(), ready.data() + ready.size()};
}

}  // namespace

CudaLayer::CudaLayer(const ModelFile& file, int64_t number, const std::vector<int64_t>& at,
                     Weights kind, const Chip& chip)
    : kind_(kind), chip_(chip), number_(int(number)), at_(at) {
  const LayerConfig& config = file.config().layers[size_t(number)];
  const std::string name = "layers." + std::to_string(number) + ".";
  cell_ = compiled(config, number);
  I_ = config.input_size;
  H_ = config.hidden_size;
  width_ = config.gates() * H_;
  constants_ = config.constants;
  const MatrixSource w = file.matrix(name + "weight_x", width_, config.input_size);
  const float* bias = file.vector(name + "bias", width_);
  if (number == 0 && file.config().input == Config::Input::kOneHot) {
    std::vector<float> table(size_t(config.input_size * width_)), row(size_t(config.input_size));
    for (int64_t i = 0; i < width_; ++i) {
      read_row(w, i, row.data());
      for (int64_t j = 0; j < config.input_size; ++j)
        table[size_t(j * width_ + i)] = bias[i] + row[size_t(j)];
    }
    table_ = uploaded(table.data(), int64_t(table.size()));
  } else {
    input_ = CudaMatrix(kind, w);
    bias_ = uploaded(bias, width_);
  }
  has_u_ = config.recurrent;
  if (has_u_) {
    recurrent_ = CudaMatrix(kind, file.matrix(name + "weight_h", width_, H_));
    tiles_ = DeviceArray<uint8_t>(tiles_bytes(kind, cell_->gates, int(H_)));
    pack_tiles(kind, cell_->gates, int(H_), recurrent_.data(), recurrent_.depth(), tiles_.data(),
               nullptr);
    if (chip.hopper && kind == Weights::kBFloat16) step_ = find_step_sm90(cell_->hash);
  }
  if (step_) {
    step_weights_ =
        DeviceArray<uint8_t>(step_weight_bytes(cell_->gates, input_.data() ? I_ : 0, H_));
    pack_step(cell_->gates, I_, H_, input_.data(), input_.depth(), recurrent_.data(),
              recurrent_.depth(), step_weights_.data(), nullptr);
  }
  const std::vector<float> vectors = prepared(file, config, name);
  prepared_ = uploaded(vectors.data(), int64_t(vectors.size()));
  check(cudaDeviceSynchronize(), "packing weights");
  if (step_) recurrent_ = CudaMatrix();  // no longer needed: both packed forms exist
}

int64_t CudaLayer::bytes() const {
  return input_.bytes() + recurrent_.bytes() + tiles_.bytes() + step_weights_.bytes() +
         bias_.bytes() + table_.bytes();
}

CellArguments CudaLayer::described(void* y, CudaWorkspace& workspace) const {
  CellArguments layer{};
  layer.H = int(H_);
  for (size_t s = 0; s < at_.size(); ++s) layer.at[s] = int(at_[s]);
  for (size_t i = 0; i < constants_.size(); ++i) layer.constants[i] = constants_[i];
  layer.prepared = prepared_.data();
  layer.y = y;
  layer.y_stride = stride();
  layer.bad = workspace.bad.data() + number_;
  return layer;
}

// Clears the columns of y past H, which the next product reads.
void CudaLayer::clear_padding(void* y, int64_t rows, CudaWorkspace& workspace) const {
  const int64_t each = kind_ == Weights::kFloat32 ? 4 : 2;
  if (stride() == H_) return;
  check(cudaMemset2DAsync(static_cast<char*>(y) + H_ * each, size_t(stride() * each), 0,
                          size_t((stride() - H_) * each), size_t(rows), workspace.queue),
        "clearing memory");
}

void CudaLayer::run(const Slices& slice, const InputRows& input, void* y, bool before,
                    CudaWorkspace& workspace) const {
  const CellArguments layer = described(y, workspace);
  const bool few = has_u_ && slice.rows.streams <= kFewStreams;
  clear_padding(y, slice.rows.streams + slice.count(), workspace);
  if (before || (has_u_ && !few)) encode_h(kind_, layer, slice.rows, workspace.queue);
  if (slice.rows.steps == 0) return;
  if (few && table_.size() > 0) return run_few(slice, layer, input, workspace);
  workspace.z.reserve(slice.count() * width_);
  project(input, slice.count(), workspace);
  few ? run_few(slice, layer, {}, workspace) : run_many(slice, layer, workspace);
}

// z = bias + W x for all rows of the slice.
void CudaLayer::project(const InputRows& input, int64_t rows, CudaWorkspace& workspace) const {
  if (table_.size() > 0)
    return gather_rows(table_.data(), input.index, rows, width_, workspace.z.data(),
                       workspace.queue);
  product(kind_,
          {rows, width_, input_.depth(), input.x, input.stride, input.index, input_.data(),
           input_.scale(), bias_.data(), workspace.z.data()},
          workspace.queue);
}

void CudaLayer::run_few(const Slices& slice, const CellArguments& layer, const InputRows& input,
                        CudaWorkspace& workspace) const {
  const int streams = slice.rows.streams, steps = slice.rows.steps;
  RecurrenceCuda all{};
  all.layer = layer;
  all.rows = slice.rows;
  all.plan =
      plan_recurrence(kind_, cell_->gates, int(H_), streams, chip_.processors, chip_.shared_limit);
  all.z = input.index ? table_.data() : workspace.z.data();
  all.z_index = input.index;
  all.tiles = tiles_.data();
  all.scale = recurrent_.scale();
  all.exchange = workspace.exchange.data();
  all.tag = slice.tag;
  all.tags_before = uint32_t(number_ * (steps + 1));
  cell_->recurrence(kind_, all, workspace.queue);
}

void CudaLayer::run_many(const Slices& slice, const CellArguments& layer,
                         CudaWorkspace& workspace) const {
  const int64_t each = kind_ == Weights::kFloat32 ? 4 : 2;
  for (int t = 0; t < slice.rows.steps; ++t) {
    float* const z = workspace.z.data() + slice.first[t] * width_;
    const int64_t before = t == 0 ? 0 : slice.rows.streams + slice.first[t - 1];
    if (has_u_)
      product(kind_,
              {slice.active[t], width_, recurrent_.depth(),
               static_cast<const char*>(layer.y) + before * stride() * each, stride(), nullptr,
               recurrent_.data(), recurrent_.scale(), nullptr, z},
              workspace.queue);
    cell_->step(kind_, {layer, slice.rows, z, t, slice.active[t]}, workspace.queue);
  }
}

void CudaLayer::run_blocked(const Slices& slice, const BlockedInput& input, const void* x,
                            const int32_t* tokens, void* h, void* y, bool before,
                            CudaWorkspace& workspace) const {
  const int steps = slice.rows.steps;
  const int64_t x_step = blocked_bytes(slice.rows.streams, I_);
  const int64_t h_step = blocked_bytes(slice.rows.streams, H_);
  workspace.h_ready.reserve(row_tiles(slice.rows.streams));
  if (H_ % kStepDepth != 0)
    check(cudaMemsetAsync(h, 0, size_t((steps + 1) * h_step), workspace.queue), "clearing memory");
  const CellArguments layer = described(y, workspace);
  if (y) clear_padding(y, slice.rows.streams + slice.count(), workspace);
  if (before) encode_h(kind_, layer, slice.rows, workspace.queue);
  block_slice(layer, slice.rows, input, h, workspace.queue);
  StepsSm90 all{};
  all.layer = layer;
  all.rows = slice.rows;
  all.active = slice.active;
  all.x = x;
  all.h = h;
  all.x_step = x_step;
  all.h_step = h_step;
  all.x_blocks = x ? int(depth_blocks(I_)) : 0;
  all.h_blocks = int(depth_blocks(H_));
  all.weights = step_weights_.data();
  all.bias = x ? bias_.data() : nullptr;
  all.table = x ? nullptr : table_.data();
  all.index = x ? nullptr : tokens;
  all.h_ready = workspace.h_ready.data();
  all.plain = y != nullptr;
  if (steps > 1)
    check(cudaMemsetAsync(workspace.h_ready.data(), 0, size_t(workspace.h_ready.bytes()),
                          workspace.queue),
          "clearing memory");
  step_->run(all, workspace.queue);
}

}  // namespace tsm::cuda
