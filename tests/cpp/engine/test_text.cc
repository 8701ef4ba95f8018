// Text in the engine: every kind of tokenizer, invalid dictionaries, and random bytes for the
// sanitizers. tests/runtime/test_text.py checks that the tokens equal Python's.
#include <functional>
#include <random>
#include <string>

#include "core/error.h"
#include "core/utf8.h"
#include "engine/model.h"
#include "engine/text/text.h"
#include "support/check.h"
#include "support/model_bytes.h"

namespace {

using Tokens = std::vector<int64_t>;

bool refused(const std::function<void()>& call, tsm::ErrorKind kind, const std::string& part) {
  try {
    call();
  } catch (const tsm::Error& error) {
    if (error.kind == kind && std::string(error.what()).find(part) != std::string::npos)
      return true;
    std::fprintf(stderr, "  it says: %s\n", error.what());
  }
  return false;
}

TEST_CASE("kinds") {
  const std::string words = "<unk> 0\n<eos> 9\nthe 5\nsea 4\n";
  const tsm::Text word("word", words, 4);
  CHECK((word.encode("the  wide\u3000sea\n\nthe") == Tokens{2, 0, 3, 1, 1, 2}));
  const Tokens line{2, 3, 1, 1, 2, 0};
  CHECK(word.decode(line.data(), line.size()) == "the sea\n\nthe <unk>");
  CHECK((word.encode("").empty() && word.decode(nullptr, 0).empty()));

  const tsm::Text character("char", "a 1\n\\s 1\n\\n 1\n\u00e9 1\n", 5);
  CHECK((character.encode("a \u00e9\n") == Tokens{0, 1, 3, 2}));
  const tsm::Text ptb("char_ptb", "a 1\n_ 1\n\\n 1\n\u00e9 1\n", 4);
  CHECK((ptb.encode(" a  \u00e9 \n\na") == Tokens{0, 1, 3, 2, 2, 0}));
  const Tokens joined{0, 1, 3, 2};
  CHECK(ptb.decode(joined.data(), joined.size()) == "a \u00e9\n");

  const tsm::Text review("review", "do 1\nn't 1\n<unk> 1\n! 1\nit 1\n's 1\n", 6);
  CHECK((review.encode("Don't it's<BR />IT!") == Tokens{0, 1, 4, 5, 4, 3}));
  CHECK((review.encode("\u0391\u03a3 _n't") == Tokens{2, 1}));
}

TEST_CASE("refused") {
  using tsm::ErrorKind;
  const auto dictionary = [](const std::string& file, const std::string& part) {
    return refused([&] { tsm::Text("char", file, 9); }, ErrorKind::kBadFile, "text.dict" + part);
  };
  CHECK(dictionary("", ": empty or cut short"));
  CHECK(dictionary("a 1", ": empty or cut short"));
  CHECK(dictionary("a 1\n\n", ", line 2: \"\"; accepted: `symbol count`"));
  CHECK(dictionary("a\n", ", line 1: \"a\"; accepted"));
  CHECK(dictionary(" 1\n", ", line 1: \" 1\"; accepted"));
  CHECK(dictionary("a 9223372036854775808\n", ", line 1"));
  CHECK(dictionary("b 1\na 1\nb 2\n", ": symbol \"b\" occurs twice, as ids 0 and 2"));
  CHECK(dictionary("\xff 1\n", ": not UTF-8 at byte 0"));
  CHECK(dictionary("ab \xed\xa0\x80 1\n", ": not UTF-8 at byte 3"));
  for (const char* escape : {"\\", "\\x", "\\u", "\\u{", "\\u{}", "\\u{41", "\\u{0000041}",
                             "\\u{110000}", "\\u{d800}", "\\u{A}"})
    CHECK(dictionary(escape + std::string(" 1\n"), ", line 1"));
  CHECK(refused([] { tsm::Text("char", "a 1\nb 1\n", 1); }, ErrorKind::kBadFile, "2 symbols"));
  CHECK(refused([] { tsm::Text("sentencepiece", "a 1\n", 1); }, ErrorKind::kInvalidArgument,
                "\"sentencepiece\"; accepted here: word, char, char_ptb, review"));
  const tsm::Text text("char", "a 1\n", 1);
  const int64_t beyond[] = {0, 1};
  CHECK(refused([&] { text.decode(beyond, 2); }, ErrorKind::kInvalidArgument, "token id 1 "));
  CHECK(refused([&] { text.encode("ab"); }, ErrorKind::kInvalidArgument, "no <unk>"));
  CHECK(refused([&] { text.encode("a\xc3"); }, ErrorKind::kInvalidArgument, "at byte 1"));
}

TEST_CASE("random") {
  const std::string parts[] = {
      "a",    "b ",   "1",        "\n",       " 1\n",     "<unk> 1\n",        "\\",
      "\\u{", "}",    "\\s",      "n't",      "'s",       "<br />",           "_",
      "\xc3", "\xa9", "\xce\xa3", "\xc4\xb0", "\xe2\x80", "\xf0\x9f\x98\x80", std::string(1, '\0')};
  std::mt19937 random(7);
  const auto bytes = [&](unsigned most) {
    std::string made;
    for (unsigned n = random() % most; n > 0; --n) made += parts[random() % std::size(parts)];
    return made;
  };
  int read = 0;
  for (int i = 0; i < 4000; ++i) {
    const char* kinds[] = {"word", "char", "char_ptb", "review"};
    try {
      const std::string file = i % 2 ? bytes(8) : "<unk> 1\n\\n 1\n" + bytes(3) + " 1\n";
      const tsm::Text text(kinds[random() % 4], file, 50);
      const std::string given = bytes(12);
      const Tokens tokens = text.encode(given);
      CHECK(tokens.size() <= given.size());
      CHECK(tsm::is_utf8(text.decode(tokens.data(), tokens.size())));
      ++read;
    } catch (const tsm::Error&) {
    }
  }
  CHECK(read > 200);
}

TEST_CASE("of a model") {
  sample::Spec spec;
  spec.V = 3;
  CHECK(refused(
      [&] {
        const sample::Writer writer(spec);
        const auto file = writer.file();
        tsm::Model::from_memory(file.data(), writer.size, "sample", {})->text();
      },
      tsm::ErrorKind::kInvalidArgument, "the model has no dictionary"));
  spec.tokenizer = "word";
  spec.dictionary = "<unk> 1\n<eos> 1\na 1\n";
  const sample::Writer writer(spec);
  const auto file = writer.file();
  const auto model = tsm::Model::from_memory(file.data(), writer.size, "sample", {});
  CHECK((model->tokenizer() == "word" && &model->text() == &model->text()));
  CHECK((model->text().encode("a b\n") == Tokens{2, 0, 1}));
}

}  // namespace
