// The safetensors reader and the model config: everything invalid is refused, with a message that
// names it. This file also tests the checksum of state blobs and the mapping of files.
#include <sys/stat.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/files/crc32.h"
#include "core/files/safetensors.h"
#include "engine/model.h"
#include "support/check.h"
#include "support/model_bytes.h"

using tsm::ErrorKind;
using tsm::MappedFile;
using tsm::SafeTensors;

namespace {

struct File {
  std::vector<uint64_t> words;
  int64_t size;

  File(std::string header, const std::string& data, uint64_t length = ~uint64_t(0)) {
    while (header.size() % 8 && header.back() != '!') header += ' ';  // as real files have it
    if (header.back() == '!') header.back() = ' ';
    if (length == ~uint64_t(0)) length = header.size();
    size = int64_t(8 + header.size() + data.size());
    words.resize(size_t(size + 7) / 8);
    auto* at = reinterpret_cast<uint8_t*>(words.data());
    std::memcpy(at, &length, 8);
    std::memcpy(at + 8, header.data(), header.size());
    std::memcpy(at + 8 + header.size(), data.data(), data.size());
  }
};

template <class Function>
void refused(const std::string& part, const Function& f) {
  try {
    f();
  } catch (const tsm::Error& error) {
    CHECK(error.kind == ErrorKind::kBadFile);
    if (std::string(error.what()).find(part) != std::string::npos) return;
    std::fprintf(stderr, "message: %s; expected in it: %s\n", error.what(), part.c_str());
    CHECK(false);
    return;
  }
  std::fprintf(stderr, "nothing was thrown; expected: %s\n", part.c_str());
  CHECK(false);
}

void bad(const std::string& part, const std::string& header, const std::string& data,
         uint64_t length = ~uint64_t(0)) {
  refused(part, [&] {
    const File file(header, data, length);
    const MappedFile view = MappedFile::view(file.words.data(), file.size, "f");
    SafeTensors tensors(view);
  });
}

TEST_CASE("reader") {
  {
    const File file(
        "{\"__metadata__\":{\"k\":\"v\"},\"a\":{\"dtype\":\"F32\",\"shape\":[2],"
        "\"data_offsets\":[0,8]},\"b\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[8,9]},"
        "\"e\":{\"dtype\":\"I8\",\"shape\":[3,0],\"data_offsets\":[9,9]}}",
        "123456789");
    const MappedFile view = MappedFile::view(file.words.data(), file.size, "f");
    const SafeTensors tensors(view);
    CHECK(tensors.tensors().size() == 3);
    CHECK((*tensors.metadata("k") == "v" && !tensors.metadata("x")));
    CHECK(tensors.find("a")->shape == std::vector<int64_t>{2});
    CHECK((tensors.find("b")->bytes == 1 && *tensors.find("b")->data == '9'));
    CHECK(tensors.find("e")->bytes == 0);
    CHECK(!tensors.find("c"));
  }
  const auto one = [&](const std::string& body) { return "{\"a\":{" + body + "}}"; };
  const std::string u8 = "\"dtype\":\"U8\",";
  bad("the header's length is", "{}", "", 9);
  bad("the header's length is", "{}", "", uint64_t(1) << 63);
  bad("JSON", "{]", "");
  bad("an object", "[]", "");
  bad("dtype", one("\"dtype\":\"F8\",\"shape\":[1],\"data_offsets\":[0,1]"), "1");
  bad("shape is missing", one(u8 + "\"data_offsets\":[0,1]"), "1");
  bad("shape[0] is -1", one(u8 + "\"shape\":[-1],\"data_offsets\":[0,1]"), "1");
  bad("shape[0] is 1.0", one(u8 + "\"shape\":[1.0],\"data_offsets\":[0,1]"), "1");
  bad("a product that a file can hold",
      one(u8 + "\"shape\":[4294967296,4294967296,4294967296],\"data_offsets\":[0,0]"), "");
  bad("a product that a file can hold",
      one("\"dtype\":\"F32\",\"shape\":[281474976710656],\"data_offsets\":[0,0]"), "");
  bad("data_offsets[1] is 2; accepted: at most 1, where the file ends (is it a complete",
      one(u8 + "\"shape\":[2],\"data_offsets\":[0,2]"), "1");
  bad("data_offsets[1] is 0", one(u8 + "\"shape\":[1],\"data_offsets\":[1,0]"), "1");
  bad("3 bytes, which U8 [3] has", one(u8 + "\"shape\":[3],\"data_offsets\":[0,2]"), "12");
  bad("after its last tensor", one(u8 + "\"shape\":[1],\"data_offsets\":[0,1]"), "12");
  bad("belong to no tensor", one(u8 + "\"shape\":[1],\"data_offsets\":[1,2]"), "12");
  bad("belong to two tensors",
      "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
      "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
      "123");
  bad("the key \"x\"", one(u8 + "\"shape\":[1],\"data_offsets\":[0,1],\"x\":1"), "1");
  bad("a string", "{\"__metadata__\":{\"a\":1}}", "");
  bad("twice", "{\"a\":1,\"a\":1}", "");
  bad("multiple of the element's size",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}!",
      "1234");  // the header has an odd length
  refused("more than 8", [] {
    const uint64_t nothing = 0;
    const MappedFile view = MappedFile::view(&nothing, 7, "f");
    SafeTensors tensors(view);
  });
}

TEST_CASE("files") {
  refused("No such file", [] { MappedFile::open("/nonexistent/model.tsm"); });
  refused("is not a regular file", [] { MappedFile::open("/tmp"); });
  refused("is not a regular file", [] { MappedFile::open("/dev/null"); });
  refused("zero byte", [] { MappedFile::open(std::string("/tmp\0x", 6)); });
}

TEST_CASE("crc32") {
  CHECK(tsm::crc32("123456789", 9) == 0xcbf43926u);  // the check value of this polynomial
  CHECK(tsm::crc32("", 0) == 0);
  CHECK(tsm::crc32("6789", 4, tsm::crc32("12345", 5)) == 0xcbf43926u);
}

void load(const sample::Writer& writer, const std::string& config) {
  const auto bytes = writer.file(config);
  tsm::Model::from_memory(bytes.data(), writer.size, "f", {});
}

// Checks that a good file's config with `from` replaced by `to` is refused.
void bad_config(const std::string& part, const std::string& from, const std::string& to,
                const sample::Spec& spec = {}) {
  const sample::Writer writer(spec);
  std::string config = writer.config();
  const size_t at = config.find(from);
  CHECK(at != std::string::npos);
  if (at == std::string::npos) return;
  config.replace(at, from.size(), to);
  refused(part, [&] { load(writer, config); });
}

TEST_CASE("config") {
  load(sample::Writer({}), sample::Writer({}).config());
  bad_config("format is 3; accepted: an integer from 1 to 2", "\"format\":2", "\"format\":3");
  bad_config("format is 1, which has no checksum", "\"format\":2", "\"format\":1");
  bad_config("format is missing", "\"format\":2,", "");
  bad_config("the key \"surprise\"", "\"format\":2", "\"surprise\":0,\"format\":2");
  bad_config("fingerprint", "0123456789abcdef", "0123456789ABCDEF");
  bad_config("fingerprint", "0123456789abcdef", "012345678");
  bad_config("family is \"gan\"; accepted: lm, classifier, tagger", "\"lm\"", "\"gan\"");
  bad_config("kind", "\"tokens\"", "\"pixels\"");
  bad_config("layers[0].input_size is 5", "\"width\":5", "\"width\":6");
  bad_config("layers[0].hidden_size", "\"hidden_size\":12", "\"hidden_size\":0");
  bad_config("layers[0].states[0].width is 12", "\"hidden_size\":12", "\"hidden_size\":13");
  bad_config("layers[0].hidden_size is 70000", "\"hidden_size\":12", "\"hidden_size\":70000");
  bad_config("each name once", "\"r\",\"o\"", "\"r\",\"r\"");
  bad_config("a name of letters", "\"r\",\"o\"", "\"r \",\"o\"");
  bad_config("h, the output, first", "{\"name\":\"h\"", "{\"name\":\"hh\"");
  bad_config("nodes[0][0] is \"sin\"", "\"neg\"", "\"sin\"");
  bad_config("nodes[1][1] is 1;", "[\"sigmoid\",0]", "[\"sigmoid\",1]");
  bad_config("nodes[1][1] is -1", "[\"sigmoid\",0]", "[\"sigmoid\",-1]");
  bad_config("a declared input", "\"s.age\"", "\"s.old\"");
  bad_config("nodes[1] is a list of 3", "[\"sigmoid\",0]", "[\"sigmoid\",0,0]");
  bad_config("outputs.h is 20", "\"h\":19", "\"h\":20");
  bad_config("one output per state", "\"h\":19,\"c\":16,", "\"h\":19,");
  bad_config("fits a float", "{\"value\":1.0}", "{\"value\":1e39}");
  bad_config("program_hash", "[\"sigmoid\",0]", "[\"tanh\",0]");
  bad_config("takes_dt", "\"takes_dt\":true", "\"takes_dt\":1");
  bad_config("layers.0.weight_h\" is not used", "\"takes_dt\":true",
             "\"takes_dt\":true,\"recurrent\":false");
  bad_config("recurrent is 0", "\"takes_dt\":true", "\"takes_dt\":true,\"recurrent\":0");
  bad_config("a declared input", "\"takes_dt\":true", "\"takes_dt\":false");
  bad_config("shortest_dt", "\"shortest_dt\":0.001", "\"shortest_dt\":2");
  bad_config("options has the key", "\"options\":{}", "\"options\":{\"x\":1}");
  bad_config("fits a float", "\"eps\":0.001", "\"eps\":1e300");
  bad_config("vocab_size = 11", "\"size\":11", "\"size\":12");
  bad_config("output.tied", "\"tied\":false", "\"tied\":true");
  bad_config("tokenizer is missing", "\"text\":null", "\"text\":{}");
  bad_config("cell is \"mine\"; accepted: nru", "\"nru\"", "\"mine\"", [] {
    sample::Spec spec;
    spec.cell = sample::nru();
    return spec;
  }());
  bad_config("a square number", "\"heads\":4", "\"heads\":3", [] {
    sample::Spec spec;
    spec.cell = sample::nru();
    return spec;
  }());
  // More values than the interpreter has room for.
  std::string nodes;
  for (int i = 0; i < 235; ++i) nodes += "[\"neg\",\"z.r\"],";
  bad_config("besides its inputs and numbers", "\"nodes\":[", "\"nodes\":[" + nodes);
}

TEST_CASE("tensors") {
  const auto broken = [](const std::string& part, const auto& change, sample::Spec spec = {}) {
    sample::Writer writer(spec);
    change(writer.all);
    refused(part, [&] { load(writer, writer.config()); });
  };
  using Tensors = std::map<std::string, sample::Tensor>;
  broken("tensor layers.1.weight_h is missing", [](Tensors& t) { t.erase("layers.1.weight_h"); });
  broken("tensor output.bias is missing", [](Tensors& t) { t.erase("output.bias"); });
  broken("layers.0.weight_x has shape [5, 36]; accepted: [36, 5]",
         [](Tensors& t) { t["layers.0.weight_x"].shape = {5, 36}; });
  broken("layers.0.bias is BF16; accepted: F32", [](Tensors& t) {
    t["layers.0.bias"].dtype = "BF16";
    t["layers.0.bias"].data.resize(72);
  });
  broken("output.weight is U8", [](Tensors& t) {
    t["output.weight"].dtype = "U8";
    t["output.weight"].data.resize(132);
  });
  broken(
      "embedding.scale is missing", [](Tensors& t) { t.erase("embedding.scale"); },
      [] {
        sample::Spec spec;
        spec.dtype = "I8";
        return spec;
      }());
  broken(
      "-127 to 127", [](Tensors& t) { t["layers.0.weight_h"].data[7] = char(0x80); },
      [] {
        sample::Spec spec;
        spec.dtype = "I8";
        return spec;
      }());
  broken("\"layers.2.bias\" is not used",
         [](Tensors& t) { t["layers.2.bias"] = t["layers.1.bias"]; });
  broken("\"text.x\" is not used", [](Tensors& t) { t["text.x"] = t["output.bias"]; });
  const uint32_t nan = 0x7fc00000u;
  for (const char* name :
       {"embedding", "layers.0.weight_x", "layers.1.bias", "layers.0.vectors.p", "output.weight"}) {
    broken(std::string(name) + " has a number that is not finite",
           [&](Tensors& t) { std::memcpy(&t[name].data[8], &nan, 4); });
  }
}

}  // namespace
