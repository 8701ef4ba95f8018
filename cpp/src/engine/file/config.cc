#include "engine/file/config.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "core/error.h"
#include "core/files/crc32.h"
#include "core/files/file_checksum.h"
#include "core/files/json.h"
#include "core/finite.h"

namespace tsm {
namespace {

constexpr int64_t kMostOneHot = 1 << 20;
constexpr int64_t kMostLayers = 256, kMostName = 64;

bool is_name(const std::string& text) {
  if (text.empty() || int64_t(text.size()) > kMostName) return false;
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  const auto fits = [&](char c) { return letter(c) || (c >= '0' && c <= '9'); };
  return letter(text[0]) && std::all_of(text.begin(), text.end(), fits);
}

const std::string& read_name(const JsonField& field) {
  if (!is_name(field.string())) field.fail("a name of letters, digits and _, up to 64 long");
  return field.string();
}

void add_name(std::vector<std::string>& names, const std::string& name, const JsonField& field) {
  if (std::find(names.begin(), names.end(), name) != names.end()) field.fail("each name once");
  names.push_back(name);
}

std::vector<std::string> read_names(const JsonField& list, int64_t least) {
  std::vector<std::string> names;
  const int64_t count = list.size(least, kMostNames);
  for (int64_t i = 0; i < count; ++i) add_name(names, read_name(list.at(i)), list.at(i));
  return names;
}

uint64_t read_hex(const JsonField& field) {
  const std::string& text = field.string();
  uint64_t value = 0;
  for (const char c : text) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit && !(c >= 'a' && c <= 'f')) field.fail("16 hexadecimal digits");
    value = value << 4 | uint64_t(digit ? c - '0' : c - 'a' + 10);
  }
  if (text.size() != 16) field.fail("16 hexadecimal digits");
  return value;
}

void read_states(const JsonField& list, bool elementwise, LayerConfig& layer) {
  const int64_t count = list.size(1, kMostNames);
  for (int64_t i = 0; i < count; ++i) {
    const JsonField state = list.at(i);
    state.only({"name", "width"});
    const std::string& name = read_name(state["name"]);
    add_name(layer.names.states, name, state["name"]);
    const int64_t width = state["width"].integer(1, kMostWidth);
    // Only the memory of nru may have a different width.
    if ((elementwise || i == 0) && width != layer.hidden_size) {
      state["width"].fail("hidden_size = " + std::to_string(layer.hidden_size));
    }
    layer.states.push_back({name, width});
  }
  if (layer.names.states[0] != "h") list.at(0)["name"].fail("h, the output, first");
}

void read_constants(const JsonField& object, LayerConfig& layer) {
  for (const auto& [name, value] : object.members(kMostNames)) {
    const JsonField field = object[name];
    if (!is_name(name)) field.fail("a key of letters, digits and _, up to 64 long");
    if (!std::isfinite(float(field.number()))) field.fail("a number that fits a float");
    layer.names.constants.push_back(name);
    layer.constants.push_back(float(value.number));
  }
}

void read_nru(const JsonField& field, LayerConfig& layer) {
  const JsonField options = field["options"];
  options.only({"memory_size", "heads", "layer_norm"});
  const int64_t memory = options["memory_size"].integer(1, kMostWidth);
  layer.heads = options["heads"].integer(1, kMostWidth);
  layer.layer_norm = options["layer_norm"].boolean();
  const int64_t product = memory * layer.heads;
  const int64_t side = int64_t(std::llround(std::sqrt(double(product))));
  if (side * side != product) options["heads"].fail("memory_size x heads a square number");
  const auto& names = layer.names;
  if (names.gates != std::vector<std::string>{"h"}) field["gates"].fail("[\"h\"] for nru");
  if (names.states != std::vector<std::string>{"h", "m"}) field["states"].fail("h, m for nru");
  if (layer.states[1].width != memory) {
    field["states"].at(1)["width"].fail("memory_size = " + std::to_string(memory));
  }
  if (!names.vectors.empty()) field["vectors"].fail("none for nru");
  if (!names.constants.empty()) field["constants"].fail("none for nru");
  if (names.takes_dt) field["takes_dt"].fail("false for nru");
  if (!layer.recurrent) field["recurrent"].fail("true for nru");
}

LayerConfig read_layer(const JsonField& field, int64_t input_size) {
  field.only({"cell", "input_size", "hidden_size", "gates", "recurrent", "states", "vectors",
              "constants", "takes_dt", "shortest_dt", "options", "program", "program_hash"});
  LayerConfig layer;
  layer.cell = read_name(field["cell"]);
  layer.input_size = field["input_size"].integer(1, kMostOneHot);
  if (layer.input_size != input_size) {
    field["input_size"].fail(std::to_string(input_size) + ", the width of what it reads");
  }
  layer.hidden_size = field["hidden_size"].integer(1, kMostWidth);
  layer.names.gates = read_names(field["gates"], 1);
  if (field.has("recurrent")) layer.recurrent = field["recurrent"].boolean();
  layer.names.vectors = read_names(field["vectors"], 0);
  read_constants(field["constants"], layer);
  layer.names.takes_dt = field["takes_dt"].boolean();
  layer.shortest_dt = field["shortest_dt"].number();
  if (!(layer.shortest_dt >= 0 && layer.shortest_dt <= 1)) {
    field["shortest_dt"].fail("0 to 1, the time step that is taken where none is given");
  }
  const JsonField program = field["program"];
  read_states(field["states"], !program.is_null(), layer);
  if (program.is_null()) {
    if (layer.cell != "nru") field["cell"].fail("nru, or a cell with its program");
    read_nru(field, layer);
    return layer;
  }
  field["options"].only({});
  layer.program = std::make_shared<CellProgram>(program, layer.names);
  if (read_hex(field["program_hash"]) != layer.program->hash()) {
    field["program_hash"].fail("the hash of this program");
  }
  return layer;
}

void read_input(const JsonField& field, Config& config) {
  const std::string& kind = field["kind"].string({"tokens", "one_hot", "values"});
  if (kind == "values") {
    field.only({"kind", "width"});
    config.input = Config::Input::kValues;
    config.vocab_size = 0;
    config.input_width = field["width"].integer(1, kMostWidth);
    return;
  }
  config.vocab_size = field["vocab_size"].integer(1, kMostSymbols);
  if (kind == "tokens") {
    field.only({"kind", "vocab_size", "width"});
    config.input = Config::Input::kTokens;
    config.input_width = field["width"].integer(1, kMostWidth);
  } else {
    field.only({"kind", "vocab_size"});
    config.input = Config::Input::kOneHot;
    config.input_width = field["vocab_size"].integer(1, kMostOneHot);
  }
}

void read_output(const JsonField& field, Config& config) {
  field.only({"size", "tied"});
  config.output_size = field["size"].integer(1, kMostSymbols);
  config.tied = field["tied"].boolean();
  if (config.family == Family::kLanguageModel) {
    if (config.input == Config::Input::kValues) field["size"].fail("tokens as input of an lm");
    if (config.output_size != config.vocab_size) {
      field["size"].fail("vocab_size = " + std::to_string(config.vocab_size) + " in an lm");
    }
  }
  const bool can_tie = config.input == Config::Input::kTokens &&
                       config.output_size == config.vocab_size &&
                       config.layers.back().hidden_size == config.input_width;
  if (config.tied && !can_tie) {
    field["tied"].fail("false, or an embedding of the last layer's width and the output's size");
  }
}

}  // namespace

Config read_config(const std::string& text, const std::string& file) {
  const JsonValue root = parse_json(text, file + ": config");
  const JsonField top(root, file + ": config");
  // Checked first, so that a file in a newer format is refused because of its format, not of an
  // unknown field.
  const int64_t format = top["format"].integer(1, kFormat);
  top.only({"format", "tsm_version", "fingerprint", "family", "arch", "input", "layers", "output",
            "text", "notes"});
  Config config;
  config.format = format;
  config.text = text;
  top["tsm_version"].string();
  config.arch = top["arch"].string();
  config.fingerprint = read_hex(top["fingerprint"]);
  const std::string& family = top["family"].string({"lm", "classifier", "tagger"});
  config.family = family == "lm"           ? Family::kLanguageModel
                  : family == "classifier" ? Family::kClassifier
                                           : Family::kTagger;
  read_input(top["input"], config);
  const JsonField layers = top["layers"];
  const int64_t count = layers.size(1, kMostLayers);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t width = i == 0 ? config.input_width : config.layers.back().hidden_size;
    config.layers.push_back(read_layer(layers.at(i), width));
  }
  read_output(top["output"], config);
  if (!top["text"].is_null()) {
    top["text"].only({"tokenizer"});
    config.tokenizer = top["text"]["tokenizer"].string();
  }
  return config;
}

ModelFile::ModelFile(const MappedFile& file) : name_(file.name()), tensors_(file) {
  const std::string* text = tensors_.metadata("tsm");
  require(text != nullptr,
          name_ + ": __metadata__.tsm is missing (a safetensors file, but not a tsm model)",
          ErrorKind::kBadFile);
  config_ = read_config(*text, name_);
  config_.checksum = check_sum(file);
}

// No single change to a file can disable this check: a file of format 2 must state its checksum,
// and a file that states one must have format 2.
std::string ModelFile::check_sum(const MappedFile& file) const {
  const bool states_one = tensors_.metadata("checksum") != nullptr;
  if (config_.format == 1 && !states_one) return check_sum_of_format_1();
  require(config_.format > 1,
          name_ + ": it is damaged: format is 1, which has no checksum, but it states one",
          ErrorKind::kBadFile);
  const std::string stated = stated_checksum(file.data(), file.size());
  require(!stated.empty(), name_ + ": it is damaged: it does not begin with its checksum",
          ErrorKind::kBadFile);
  const std::string found = computed_checksum(file.data(), file.size());
  require(stated == found,
          name_ + ": it is damaged: its checksum is " + found + ", but it states " + quoted(stated),
          ErrorKind::kBadFile);
  return found;
}

// In format 1 the checksum covers only the config and the bytes of the tensors, and the first files
// had none.
std::string ModelFile::check_sum_of_format_1() const {
  const std::string* stated = tensors_.metadata("crc32");
  uint32_t crc = crc32(config_.text.data(), int64_t(config_.text.size()));
  for (const auto& [name, tensor] : tensors_.tensors()) crc = crc32(tensor.data, tensor.bytes, crc);
  char found[9];
  std::snprintf(found, sizeof found, "%08x", crc);
  require(!stated || *stated == found,
          name_ + ": it is damaged: the checksum of its contents is " + found + ", but it states " +
              (stated ? quoted(*stated) : ""),
          ErrorKind::kBadFile);
  return found;
}

const Tensor& ModelFile::tensor(const std::string& name, const std::vector<int64_t>& shape) const {
  const Tensor* found = tensors_.find(name);
  require(found != nullptr, name_ + ": tensor " + name + " is missing", ErrorKind::kBadFile);
  require(found->shape == shape,
          name_ + ": tensor " + name + " has shape " + shown(found->shape) +
              "; accepted: " + shown(shape),
          ErrorKind::kBadFile);
  used_.insert(name);
  return *found;
}

void ModelFile::check_rest() const {
  for (const auto& [name, tensor] : tensors_.tensors()) {
    if (used_.count(name)) continue;
    const bool text = name.compare(0, 5, "text.") == 0 && tensor.type == ElementType::kUInt8;
    require(text, name_ + ": tensor " + quoted(name) + " is not used by the config",
            ErrorKind::kBadFile);
  }
}

std::map<std::string, std::string> ModelFile::assets() const {
  std::map<std::string, std::string> copies;
  for (const auto& [name, tensor] : tensors_.tensors()) {
    if (tensor.type != ElementType::kUInt8) continue;
    copies.emplace(name,
                   std::string(reinterpret_cast<const char*>(tensor.data), size_t(tensor.bytes)));
  }
  return copies;
}

MatrixSource ModelFile::matrix(const std::string& name, int64_t outputs, int64_t inputs) const {
  const Tensor& found = tensor(name, {outputs, inputs});
  MatrixSource source{MatrixSource::kFloat32, found.data, outputs, inputs, inputs, 1, nullptr};
  bool finite = true;
  const int64_t count = outputs * inputs;
  switch (found.type) {
    case ElementType::kFloat32:
      finite = all_finite(reinterpret_cast<const float*>(found.data), count);
      break;
    case ElementType::kBFloat16:
      source.type = MatrixSource::kBFloat16;
      finite = all_finite(reinterpret_cast<const uint16_t*>(found.data), count);
      break;
    case ElementType::kInt8:
      source.type = MatrixSource::kInt8;
      source.scales = vector(name + ".scale", outputs);
      require(std::memchr(found.data, 0x80, size_t(count)) == nullptr,
              name_ + ": tensor " + name + " has -128; accepted: -127 to 127", ErrorKind::kBadFile);
      break;
    case ElementType::kUInt8:
      throw Error(name_ + ": tensor " + name + " is U8; accepted: F32, BF16, I8",
                  ErrorKind::kBadFile);
  }
  require(finite, name_ + ": tensor " + name + " has a number that is not finite",
          ErrorKind::kBadFile);
  return source;
}

const float* ModelFile::vector(const std::string& name, int64_t count) const {
  const Tensor& found = tensor(name, {count});
  require(found.type == ElementType::kFloat32,
          name_ + ": tensor " + name + " is " + name_of(found.type) + "; accepted: F32",
          ErrorKind::kBadFile);
  const auto* data = reinterpret_cast<const float*>(found.data);
  require(all_finite(data, count), name_ + ": tensor " + name + " has a number that is not finite",
          ErrorKind::kBadFile);
  return data;
}

}  // namespace tsm
