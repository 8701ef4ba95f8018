// The tokens of a review (IMDB): lower case, <br /> is a space; then words, n't, 's 'm 'd 're 've
// 'll, and marks. Scans for plugin/data/tokenizers.py's regular expression
//   [^\W\d_]+(?=n't\b)|n't\b|'(?:s|m|d|re|ve|ll)\b|[^\W_]+|[.,!?;:()"$%&*/-]
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace tsm {

// Parts of a cleaned text, which must outlive them.
std::vector<std::u32string_view> review_symbols(std::u32string_view clean);
std::u32string clean_review(std::u32string_view text);

}  // namespace tsm
