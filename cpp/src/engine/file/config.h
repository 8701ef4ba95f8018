// What a model file says of its model, checked: sizes within limits, names that exist, tensors of
// the right shapes and types. Nothing is allocated by a number that no tensor confirms.
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

constexpr int64_t kFormat = 2;  // the newest format that is read
constexpr int64_t kMostWidth =
    1 << 16;  // of an input, a layer, a state: int8 sums of two fit 32 bits
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
  // Whether the compiled cell computes what the program says, whatever it is called. The hash
  // covers the names; counting again keeps a forged one from reading out of bounds.
  bool runs_as(const CellInfo& cell) const {
    return program && cell.hash == program->hash() && cell.gates == gates() &&
           cell.states == int(states.size()) && cell.vectors == int(names.vectors.size()) &&
           cell.constants == int(constants.size()) && cell.takes_dt == names.takes_dt;
  }
};

struct Config {
  enum class Input { kTokens, kOneHot, kValues };

  int64_t format;
  std::string text;  // as it stands in the file
  std::string arch;
  uint64_t fingerprint;
  Family family;
  Input input;
  int64_t vocab_size;   // 0 for values
  int64_t input_width;  // of what the first layer reads
  std::vector<LayerConfig> layers;
  int64_t output_size;
  bool tied;
  std::string tokenizer;  // its kind; empty: the model is not one of text
  std::string checksum;   // of the file, 8 hexadecimal digits
};

// Config and tensors of a file, which must outlive them.
class ModelFile {
 public:
  explicit ModelFile(const MappedFile& file);

  const Config& config() const { return config_; }
  const std::string& name() const { return name_; }

  // A matrix [outputs, inputs], finite. tsm::Error (kBadFile) where the file has no such tensor.
  MatrixSource matrix(const std::string& name, int64_t outputs, int64_t inputs) const;
  // Floats [count], finite.
  const float* vector(const std::string& name, int64_t count) const;
  // To call at the end: a tensor that was never used is an error, unless it is one of the bytes
  // "text.*".
  void check_rest() const;
  // Copies of the byte tensors, name -> bytes.
  std::map<std::string, std::string> assets() const;

 private:
  // Of the file; tsm::Error where it states another.
  std::string check_sum(const MappedFile& file) const;
  std::string check_sum_of_format_1() const;
  const Tensor& tensor(const std::string& name, const std::vector<int64_t>& shape) const;

  std::string name_;
  SafeTensors tensors_;
  Config config_;
  mutable std::set<std::string> used_;
};

// Reads the config's text; `file` stands in messages.
Config read_config(const std::string& text, const std::string& file);

}  // namespace tsm
