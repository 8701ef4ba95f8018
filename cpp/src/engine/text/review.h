// The tokens of a review (IMDB): the text is lowercased and <br /> becomes a space; tokens are
// words, n't, 's 'm 'd 're 've 'll, and punctuation. This scans for the regular expression in
// plugin/data/tokenizers.py:
//   [^\W\d_]+(?=n't\b)|n't\b|'(?:s|m|d|re|ve|ll)\b|[^\W_]+|[.,!?;:()"$%&*/-]
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace tsm {

// Views into a cleaned text, which must outlive them.
std::vector<std::u32string_view> review_symbols(std::u32string_view clean);
std::u32string clean_review(std::u32string_view text);

}  // namespace tsm
