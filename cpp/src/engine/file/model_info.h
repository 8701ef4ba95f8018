// Facts about a model that its file states.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace tsm {

enum class Family { kLanguageModel, kClassifier, kTagger };

struct StateInfo {
  std::string name;  // "h", "c", "age", "m"
  int64_t width;
};

struct LayerInfo {
  std::string cell;
  int64_t input_size, hidden_size;
  std::vector<StateInfo> states;
  bool interpreted;  // not compiled in: interpreted from the file's program
};

}  // namespace tsm
