// Converts text to tokens and back, for models whose file contains a dictionary. The tokens are
// those of plugin/data/tokenizers.py, which describes each kind of tokenizer;
// tests/runtime/test_text.py compares the two.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/dictionary.h"

namespace tsm {

class Text {
 public:
  // tokenizer: the kind, as in the config. dictionary: the asset text.dict. tokens: the model's
  // vocabulary size. Throws tsm::Error if these cannot be used to convert text.
  Text(std::string_view tokenizer, std::string_view dictionary, int64_t tokens);

  // Encodes UTF-8: whole lines with their line ends, then any unfinished last line. A text never
  // has more tokens than bytes.
  std::vector<int64_t> encode(std::string_view text) const;
  std::string decode(const int64_t* tokens, size_t count) const;

 private:
  enum class Kind { kWord, kChar, kPtbChar, kReview };
  static Kind kind_named(std::string_view tokenizer);

  void encode_words(std::string_view text, std::vector<int64_t>& tokens) const;
  void encode_characters(std::string_view text, std::vector<int64_t>& tokens) const;
  void encode_ptb_characters(std::string_view text, std::vector<int64_t>& tokens) const;
  void encode_review(std::string_view text, std::vector<int64_t>& tokens) const;

  Kind kind_;
  Dictionary dictionary_;
};

}  // namespace tsm
