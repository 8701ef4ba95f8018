// The contents of a model file, checked: sizes are within limits, names exist, and tensors have the
// right shapes and types. Memory is allocated only for sizes that a tensor confirms.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/files/safetensors.h"
#include "engine/file/model_info.h"
#include "engine/file/program.h"
#include "kernels/cell_table.h"
#include "kernels/weights.h"

namespace tsm {

constexpr int64_t kFormat = 2;  // the newest supported format
constexpr int64_t kMostWidth =
    1 << 16;  // of an input, layer or state: int8 sums over two of them fit in 32 bits
constexpr int64_t kMostSymbols = int64_t(1) << 31;

struct LayerConfig {
  std::string cell;
  int64_t input_size, hidden_size;
  CellNames names;
  std::vector<StateInfo> states;
  std::vector<float> constants;
  double shortest_dt;
  bool recurrent = true;                       // false: no gate reads h, and there is no U
  std::shared_ptr<const CellProgram> program;  // null: a composite cell
  // nru
  int64_t heads = 0;
  bool layer_norm = false;

  int64_t gates() const { return int64_t(names.gates.size()); }
  // Whether the compiled cell computes this program, whatever its name. The hash covers the names;
  // comparing the counts as well keeps a forged hash from causing reads out of bounds.
  bool runs_as(const CellInfo& cell) const {
    return program && cell.hash == program->hash() && cell.gates == gates() &&
           cell.states == int(states.size()) && cell.vectors == int(names.vectors.size()) &&
           cell.constants == int(constants.size()) && cell.takes_dt == names.takes_dt;
  }
};

struct Config {
  enum class Input { kTokens, kOneHot, kValues };

  int64_t format;
  std::string text;  // as in the file
  std::string arch;
  uint64_t fingerprint;
  Family family;
  Input input;
  int64_t vocab_size;   // 0 for values
  int64_t input_width;  // of what the first layer reads
  std::vector<LayerConfig> layers;
  int64_t output_size;
  bool tied;
  std::string tokenizer;  // its kind; empty if the model does not read text
  std::string checksum;   // of the file, 8 hexadecimal digits
};

// The config and tensors of a file, which must outlive this object.
class ModelFile {
 public:
  explicit ModelFile(const MappedFile& file);

  const Config& config() const { return config_; }
  const std::string& name() const { return name_; }

  // A finite matrix [outputs, inputs]. Throws tsm::Error (kBadFile) if the file has no such tensor.
  MatrixSource matrix(const std::string& name, int64_t outputs, int64_t inputs) const;
  // Floats [count], finite.
  const float* vector(const std::string& name, int64_t count) const;
  // Called at the end: an unused tensor is an error, unless it is a byte tensor "text.*".
  void check_rest() const;
  // Copies of the byte tensors, name -> bytes.
  std::map<std::string, std::string> assets() const;

 private:
  // The checksum of the file. Throws tsm::Error if the file states a different checksum.
  std::string check_sum(const MappedFile& file) const;
  std::string check_sum_of_format_1() const;
  const Tensor& tensor(const std::string& name, const std::vector<int64_t>& shape) const;

  std::string name_;
  SafeTensors tensors_;
  Config config_;
  mutable std::set<std::string> used_;
};

// Reads the config's text; `file` is used in error messages.
Config read_config(const std::string& text, const std::string& file);

}  // namespace tsm
