// The dictionary stored with a model (dict.txt: one `symbol count` per line, line number = id, with
// escapes \\ \s \n \t \r \u{hex}), read as strictly as in plugin/data/vocab.py.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tsm {

class Dictionary {
 public:
  // Throws tsm::Error (kBadFile), which names `name` and the line.
  Dictionary(std::string_view file, const std::string& name);
  Dictionary(const Dictionary&) = delete;
  Dictionary& operator=(const Dictionary&) = delete;

  int64_t size() const { return int64_t(symbols_.size()); }
  std::string_view operator[](int64_t id) const;  // throws tsm::Error if there is no such id
  // An unknown symbol becomes <unk>, or is an error if the dictionary has no <unk>.
  int64_t id(std::string_view symbol) const;

 private:
  int64_t find(std::string_view symbol) const;  // -1: not found

  std::string text_;  // of all symbols
  std::vector<std::string_view> symbols_;
  std::vector<uint32_t> sorted_;  // ids sorted by symbol: no input can make look-ups slow
  int64_t unknown_;
};

}  // namespace tsm
