// Reads arbitrary dictionaries and texts: they must be accepted or refused with tsm::Error. The
// first byte selects the tokenizer and whether the dictionary gets an <unk>. The dictionary, a zero
// byte and the text follow.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/error.h"
#include "core/utf8.h"
#include "engine/text/text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view all(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string_view file = all.substr(0, all.find('\0'));
  const std::string_view text = all.substr(file.size() < all.size() ? file.size() + 1 : all.size());
  const char* const kinds[] = {"word", "char", "char_ptb", "review"};
  const std::string dictionary = (data[0] / 4 % 2 ? "<unk> 1\n" : "") + std::string(file);
  try {
    const tsm::Text made(kinds[data[0] % 4], dictionary, 1000);
    const auto tokens = made.encode(text);
    const std::string decoded = made.decode(tokens.data(), tokens.size());
    if (tokens.size() > text.size() || !tsm::is_utf8(decoded)) std::abort();
  } catch (const tsm::Error&) {
  }
  return 0;
}
