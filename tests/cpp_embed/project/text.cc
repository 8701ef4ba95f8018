// Text through tsm.h and tsm.hpp: `text MODEL < input` prints its tokens and what they decode to.
#include <cstdio>
#include <iostream>
#include <iterator>
#include <tsm/tsm.hpp>

namespace {

int failures = 0;

#define CHECK(condition)                                                           \
  do {                                                                             \
    if (!(condition)) {                                                            \
      ++failures;                                                                  \
      std::fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
    }                                                                              \
  } while (0)

// Checks sizes and null pointers, with a text of at least one token.
void check_sizes(const tsm_model* model, const std::string& input) {
  size_t count = 0, bytes = 0;
  CHECK(tsm_model_encode(model, input.data(), input.size(), nullptr, 0, &count) == TSM_OK);
  CHECK(count > 0 && count <= input.size());
  std::vector<int64_t> tokens(count + 1, -7);
  size_t again = 0;
  CHECK(tsm_model_encode(model, input.data(), input.size(), tokens.data(), count - 1, &again) ==
        TSM_INVALID_ARGUMENT);
  CHECK(again == count && tokens[0] == -7);
  CHECK(tsm_model_encode(model, input.data(), input.size(), tokens.data(), count, &again) ==
        TSM_OK);
  CHECK(tokens[count - 1] >= 0 && tokens[count] == -7);
  CHECK(tsm_model_decode(model, tokens.data(), count, nullptr, 0, &bytes) == TSM_OK);
  std::vector<char> text(bytes + 1, 7);
  CHECK(tsm_model_decode(model, tokens.data(), count, text.data(), bytes - 1, &again) ==
        TSM_INVALID_ARGUMENT);
  CHECK(again == bytes && text[0] == 7);
  CHECK(tsm_model_decode(model, tokens.data(), count, text.data(), bytes, &again) == TSM_OK);
  CHECK(text[bytes] == 7);

  CHECK(tsm_model_encode(model, nullptr, 0, nullptr, 0, &count) == TSM_OK && count == 0);
  CHECK(tsm_model_decode(model, nullptr, 0, nullptr, 0, &bytes) == TSM_OK && bytes == 0);
  CHECK(tsm_model_encode(nullptr, "a", 1, nullptr, 0, &count) == TSM_INVALID_ARGUMENT);
  CHECK(tsm_model_encode(model, nullptr, 1, nullptr, 0, &count) == TSM_INVALID_ARGUMENT);
  CHECK(tsm_model_encode(model, "a", 1, nullptr, 0, nullptr) == TSM_INVALID_ARGUMENT);
  CHECK(tsm_model_decode(nullptr, nullptr, 0, nullptr, 0, &bytes) == TSM_INVALID_ARGUMENT);
  CHECK(tsm_model_decode(model, nullptr, 1, nullptr, 0, &bytes) == TSM_INVALID_ARGUMENT);
  CHECK(tsm_model_decode(model, nullptr, 0, nullptr, 0, nullptr) == TSM_INVALID_ARGUMENT);
  const int64_t beyond = int64_t(1) << 40;
  CHECK(tsm_model_decode(model, &beyond, 1, nullptr, 0, &bytes) == TSM_INVALID_ARGUMENT);
}

}  // namespace

int main(int, char** argv) {
  const std::string input{std::istreambuf_iterator<char>(std::cin), {}};
  try {
    const auto model = tsm::Model::load(argv[1]);
    const std::vector<std::int64_t> tokens = model.encode(input);
    check_sizes(model.get(), input);
    for (const std::int64_t token : tokens) std::cout << token << ' ';
    std::cout << '\n' << model.decode(tokens);
  } catch (const tsm::Error& error) {
    std::cerr << tsm_status_name(error.status) << ": " << error.what() << '\n';
    return 1;
  }
  return failures ? 2 : 0;
}
