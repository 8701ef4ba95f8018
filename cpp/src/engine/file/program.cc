#include "engine/file/program.h"

#include <cmath>
#include <cstring>
#include <map>

#include "core/error.h"

namespace tsm {
namespace {

Operation operation(const JsonField& field) {
  std::string names;
  for (int i = 0; i < kOperations; ++i) {
    if (field.string() == kOperationNames[i]) return Operation(i);
    names += (i == 0 ? "" : ", ") + std::string(kOperationNames[i]);
  }
  field.fail(names);
}

// Writes the text to be hashed, and numbers the values.
class Reader {
 public:
  explicit Reader(const CellNames& names) {
    list("gates", "z.", names.gates);
    list("states", "s.", names.states);
    list("vectors", "v.", names.vectors);
    list("constants", "k.", names.constants);
    if (names.takes_dt) numbers_["dt"] = inputs_;
    ++inputs_;  // every program has a number for dt
    text_ += names.takes_dt ? "dt 1\n" : "dt 0\n";
  }

  int inputs() const { return inputs_; }
  const std::vector<float>& literals() const { return literals_; }
  void append(const std::string& text) { text_ += text; }

  // Reads an argument. Nodes get their final numbers once the counts are known, so node n is -1 - n
  // here. A literal comes after the inputs.
  int32_t reference(const JsonField& field, int64_t nodes) {
    const JsonValue& value = field.value();
    if (value.type == JsonValue::Type::kInteger) {
      const int64_t number = field.integer(0, nodes - 1);
      text_ += " " + std::to_string(number);
      return int32_t(-1 - number);
    }
    if (value.type == JsonValue::Type::kString) {
      const auto found = numbers_.find(value.string);
      if (found == numbers_.end())
        field.fail("a declared input: z., s., v. or k. and its name, dt");
      text_ += " " + value.string;
      return found->second;
    }
    if (value.type != JsonValue::Type::kObject) {
      field.fail("the number of an earlier node, an input's name, or {\"value\": number}");
    }
    field.only({"value"});
    const double literal = field["value"].number();
    if (!std::isfinite(float(literal))) field["value"].fail("a number that fits a float");
    text_ += " =" + bits(literal);
    literals_.push_back(float(literal));
    return inputs_ + int32_t(literals_.size()) - 1;
  }

  uint64_t hash() const {
    uint64_t value = 0xcbf29ce484222325u;
    for (const char c : text_) value = (value ^ uint8_t(c)) * 0x100000001b3u;
    return value;
  }

 private:
  void list(const char* what, const char* prefix, const std::vector<std::string>& names) {
    text_ += what;
    for (const std::string& name : names) {
      text_ += " " + name;
      numbers_[prefix + name] = inputs_++;
    }
    text_ += "\n";
  }

  static std::string bits(double value) {
    uint64_t u;
    std::memcpy(&u, &value, 8);
    std::string text(16, '0');
    for (int i = 15; i >= 0; --i, u >>= 4) text[size_t(i)] = "0123456789abcdef"[u & 15];
    return text;
  }

  std::map<std::string, int32_t> numbers_;
  std::vector<float> literals_;
  std::string text_;
  int32_t inputs_ = 0;
};

}  // namespace

CellProgram::CellProgram(const JsonField& program, const CellNames& names)
    : gates_(int(names.gates.size())),
      states_(int(names.states.size())),
      vectors_(int(names.vectors.size())),
      constants_(int(names.constants.size())) {
  program.only({"nodes", "outputs"});
  Reader reader(names);
  const JsonField nodes = program["nodes"];
  const int64_t count = nodes.size(0, kMostValues);
  for (int64_t i = 0; i < count; ++i) {
    const JsonField node = nodes.at(i);
    node.size(2, 3);
    Instruction instruction{operation(node.at(0)), 0, 0};
    const bool two = takes_two(instruction.op);
    node.size(two ? 3 : 2, two ? 3 : 2);
    reader.append(kOperationNames[int(instruction.op)]);
    instruction.a = reader.reference(node.at(1), i);
    if (two) instruction.b = reader.reference(node.at(2), i);
    reader.append("\n");
    instructions_.push_back(instruction);
  }
  const JsonField outputs = program["outputs"];
  if (outputs.members(states_).size() != names.states.size()) {
    outputs.fail("one output per state: " + std::to_string(states_));
  }
  for (const std::string& state : names.states) {
    reader.append(state);
    outputs_.push_back(reader.reference(outputs[state], count));
    reader.append("\n");
  }
  literals_ = reader.literals();
  const int32_t before = reader.inputs() + int32_t(literals_.size());
  if (before + count > kMostValues) {
    nodes.fail("at most " + std::to_string(kMostValues - before) +
               " nodes besides its inputs and numbers");
  }
  const auto place = [before](int32_t& number) {
    if (number < 0) number = before + (-1 - number);
  };
  for (Instruction& instruction : instructions_) {
    place(instruction.a);
    place(instruction.b);
  }
  for (int32_t& output : outputs_) place(output);
  hash_ = reader.hash();
}

Program CellProgram::view() const {
  return {gates_,
          states_,
          vectors_,
          constants_,
          int(literals_.size()),
          int(instructions_.size()),
          literals_.data(),
          instructions_.data(),
          outputs_.data()};
}

}  // namespace tsm
