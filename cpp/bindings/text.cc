// Text in Python: the engine implements the word and character tokenizers; sentencepiece models are
// handled by the sentencepiece package.
#include "engine/text/text.h"

#include "arrays.h"
#include "no_gil.h"
#include "objects.h"

namespace py = pybind11;

namespace tsm::bindings {
namespace {

// Returns the tsm.runtime._pieces.Pieces of a sentencepiece model; null for all other tokenizers,
// which the engine implements.
py::object pieces_of(PyModel& m) {
  if (m.model->tokenizer() != "sentencepiece") return {};
  if (!m.pieces) {
    const std::string_view asset = m.model->asset("text.sentencepiece");
    require(!asset.empty(), "the model has no asset text.sentencepiece; accepted: one that has",
            ErrorKind::kBadFile);
    m.pieces = py::module_::import("tsm.runtime._pieces")
                   .attr("Pieces")(py::bytes(asset.data(), asset.size()));
  }
  return m.pieces;
}

std::string_view utf8_of(py::handle text) {
  if (!PyUnicode_Check(text.ptr()))
    throw Error("text is a " + std::string(Py_TYPE(text.ptr())->tp_name) + "; accepted: str");
  Py_ssize_t bytes = 0;
  if (const char* data = PyUnicode_AsUTF8AndSize(text.ptr(), &bytes)) return {data, size_t(bytes)};
  const py::error_already_set error;
  if (!error.matches(PyExc_UnicodeEncodeError)) throw error;
  throw Error("text has half of a surrogate pair at character " +
              py::str(error.value().attr("start")).cast<std::string>() +
              "; accepted: what UTF-8 can write");
}

py::array_t<int64_t> encode(PyModel& m, py::handle text) {
  const std::shared_ptr<const Model> model = m.model.share();
  const std::string_view utf8 = utf8_of(text);
  if (const py::object pieces = pieces_of(m)) return pieces.attr("encode")(text);
  std::vector<int64_t> tokens;
  {
    const NoGil no_gil;
    tokens = model->text().encode(utf8);
  }
  return py::array_t<int64_t>(py::ssize_t(tokens.size()), tokens.data());
}

py::object decode(PyModel& m, py::handle tokens) {
  const std::shared_ptr<const Model> model = m.model.share();
  const TokenInput in = read_tokens(tokens, "tokens");
  std::vector<int64_t> own(static_cast<size_t>(in.rows));  // a copy that no other thread can change
  for (int64_t i = 0; i < in.rows; ++i) own[size_t(i)] = in.tokens[i];
  if (const py::object pieces = pieces_of(m))
    return pieces.attr("decode")(py::array_t<int64_t>(in.rows, own.data()).attr("tolist")());
  std::string text;
  {
    const NoGil no_gil;
    text = model->text().decode(own.data(), own.size());
  }
  return py::str(text);
}

py::object tokenizer(const PyModel& m) {
  const std::string& kind = m.model->tokenizer();
  return kind.empty() ? py::object(py::none()) : py::str(kind);
}

}  // namespace

void bind_text(ModelClass& model) {
  model
      .def(
          "encode", &encode, py::arg("text"),
          "The tokens of a text, int64 [T], if the file contains a dictionary. A newline ends a\n"
          "line (the token <eos>, if lines have one); the last line needs no newline. A word that\n"
          "is not in the dictionary becomes <unk>, or is an error if there is no <unk>.")
      .def("decode", &decode, py::arg("tokens"), "The text of tokens [T].")
      .def_property_readonly("tokenizer", &tokenizer,
                             "word, char, char_ptb, review or sentencepiece; None if the model "
                             "does not read text.");
}

}  // namespace tsm::bindings
