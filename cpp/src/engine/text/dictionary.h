// The dictionary that travels with a model (dict.txt: `symbol count` a line, line number = id, with
// escapes \\ \s \n \t \r \u{hex}), read as strictly as plugin/data/vocab.py does.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tsm {

class Dictionary {
 public:
  // tsm::Error (kBadFile) names `name` and the line.
  Dictionary(std::string_view file, const std::string& name);
  Dictionary(const Dictionary&) = delete;
  Dictionary& operator=(const Dictionary&) = delete;

  int64_t size() const { return int64_t(symbols_.size()); }
  std::string_view operator[](int64_t id) const;  // tsm::Error where there is no such id
  // An unknown symbol is <unk>, or an error where the dictionary has none.
  int64_t id(std::string_view symbol) const;

 private:
  int64_t find(std::string_view symbol) const;  // -1: not there

  std::string text_;  // of all symbols
  std::vector<std::string_view> symbols_;
  std::vector<uint32_t> sorted_;  // ids by symbol: no input makes a look-up slow
  int64_t unknown_;
};

}  // namespace tsm
