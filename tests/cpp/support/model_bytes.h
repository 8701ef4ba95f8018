// Model files made in memory, with weights from a small random generator, for the tests of the
// engine and the seed inputs of the fuzzers.
#pragma once
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "core/files/file_checksum.h"

namespace sample {

// splitmix64: the same numbers everywhere.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t x = state_ += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }
  int64_t below(int64_t n) { return int64_t(next() % uint64_t(n)); }
  float between(float low, float high) {
    return low + (high - low) * float(double(next() >> 11) * 0x1p-53);
  }

 private:
  uint64_t state_;
};

struct Cell {
  std::string name, gates, states, vectors, constants;  // lists with single spaces
  bool takes_dt;
  std::string program, hash;  // empty program: nru
};

inline std::vector<std::string> words(const std::string& text) {
  std::vector<std::string> found(1);
  for (char c : text) {
    if (c == ' ')
      found.emplace_back();
    else
      found.back() += c;
  }
  if (found.back().empty()) found.pop_back();
  return found;
}

// Programs as compiled by `make cells`: a test checks that their hashes still match.
inline Cell plstm() {
  return {"plstm",
          "r o g",
          "h c age",
          "p",
          "eps",
          true,
          R"({"nodes":[["neg","z.r"],["sigmoid",0],["add","s.age","dt"],["mul",1,2],)"
          R"(["add","s.age",{"value":1.0}],["mul",1,4],["add",5,"k.eps"],["add",3,{"value":1.0}],)"
          R"(["div",6,7],["log",8],["mul","v.p",9],["exp",10],["sub",{"value":1.0},11],)"
          R"(["mul",11,"s.c"],["tanh","z.g"],["mul",12,14],["add",13,15],["sigmoid","z.o"],)"
          R"(["tanh",16],["mul",17,18]],"outputs":{"h":19,"c":16,"age":3}})",
          "3737510e02490416"};
}
inline Cell lstm() {
  return {"lstm",
          "i f g o",
          "h c",
          "",
          "",
          false,
          R"({"nodes":[["sigmoid","z.f"],["sigmoid","z.i"],["mul",0,"s.c"],["tanh","z.g"],)"
          R"(["mul",1,3],["add",2,4],["sigmoid","z.o"],["tanh",5],["mul",6,7]],)"
          R"("outputs":{"h":8,"c":5}})",
          "e6d8c010b11412b4"};
}
// Not compiled in: h = f h' + (1 - f) tanh(z_g), f = sigmoid(z_f) / (1 + dt)
inline Cell leaky() {
  return {"leaky",
          "f g",
          "h",
          "",
          "",
          true,
          R"({"nodes":[["sigmoid","z.f"],["add","dt",{"value":1.0}],["div",0,1],)"
          R"(["mul",2,"s.h"],["sub",{"value":1.0},2],["tanh","z.g"],["mul",4,5],["add",3,6]],)"
          R"("outputs":{"h":7}})",
          "?"};
}
// Not compiled in, and diverges: c grows a hundredfold each step
inline Cell bomb() {
  return {"bomb",
          "g",
          "h c",
          "",
          "",
          false,
          R"({"nodes":[["mul","s.c",{"value":100.0}],["tanh","z.g"],["add",0,1],)"
          R"(["tanh",2]],"outputs":{"h":3,"c":2}})",
          "?"};
}
inline Cell nru() { return {"nru", "h", "h m", "", "", false, "", ""}; }

struct Spec {
  Cell cell = plstm();
  std::string family = "lm", input = "tokens";       // "one_hot", "values"
  int64_t V = 11, I = 5, H = 12, layers = 2, C = 0;  // C = 0: V
  bool tied = false, layer_norm = false;
  int64_t memory = 4, heads = 4;
  std::string dtype = "F32";  // of the matrices: "BF16", "I8"
  float scale = 0.8f;         // weights are drawn from [-scale, scale]
  uint64_t seed = 1;
  std::string tokenizer, dictionary;  // of a model of text
};

// Writes the checksum into a file that has room for it.
inline void seal(uint8_t* file, int64_t bytes) {
  const std::string digits = tsm::computed_checksum(file, bytes);
  std::memcpy(file + tsm::kChecksumAt, digits.data(), digits.size());
}

struct Tensor {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string data;
};

// FNV-1a of a program's text; only for programs in this file, which need no real JSON parser.
inline std::string program_hash(const Cell& cell);

class Writer {
 public:
  explicit Writer(const Spec& spec) : s_(spec), random_(spec.seed) { tensors(); }

  std::string config() const {
    const int64_t out = s_.C ? s_.C : s_.V;
    std::string input = "{\"kind\":\"" + s_.input + "\"";
    if (s_.input != "values") input += ",\"vocab_size\":" + num(s_.V);
    if (s_.input == "tokens") input += ",\"width\":" + num(s_.I);
    if (s_.input == "values") input += ",\"width\":" + num(s_.I);
    std::string layers;
    for (int64_t l = 0; l < s_.layers; ++l) layers += (l ? "," : "") + layer(l);
    return "{\"format\":2,\"tsm_version\":\"0.0.0\",\"fingerprint\":\"" + fingerprint +
           "\",\"family\":\"" + s_.family + "\",\"arch\":\"sample\",\"input\":" + input +
           "},\"layers\":[" + layers + "],\"output\":{\"size\":" + num(out) +
           ",\"tied\":" + (s_.tied ? "true" : "false") + "},\"text\":" +
           (s_.tokenizer.empty() ? "null" : "{\"tokenizer\":\"" + s_.tokenizer + "\"}") + "}";
  }

  // The file, aligned to 8 bytes.
  std::vector<uint64_t> file() const { return file(config()); }
  std::vector<uint64_t> file(const std::string& config) const {
    std::string header = tsm::kChecksumPrefix + std::string("00000000\",\"tsm\":\""), data;
    for (char c : config)
      header += (c == '"' || c == '\\') ? std::string("\\") + c : std::string(1, c);
    header += "\"}";
    for (const char* dtype : {"F32", "BF16", "I8", "U8"}) {  // by falling size: aligned
      for (const auto& [name, tensor] : all) {
        if (tensor.dtype != dtype) continue;
        header += ",\"" + name + "\":{\"dtype\":\"" + tensor.dtype + "\",\"shape\":[";
        for (size_t i = 0; i < tensor.shape.size(); ++i) {
          header += (i ? "," : "") + num(tensor.shape[i]);
        }
        header += "],\"data_offsets\":[" + num(int64_t(data.size())) + ",";
        data += tensor.data;
        header += num(int64_t(data.size())) + "]}";
      }
    }
    header += "}";
    while (header.size() % 8) header += ' ';
    std::vector<uint64_t> bytes((8 + header.size() + data.size() + 7) / 8);
    auto* at = reinterpret_cast<uint8_t*>(bytes.data());
    const uint64_t length = header.size();
    std::memcpy(at, &length, 8);
    std::memcpy(at + 8, header.data(), header.size());
    std::memcpy(at + 8 + header.size(), data.data(), data.size());
    size = int64_t(8 + header.size() + data.size());
    seal(at, size);
    return bytes;
  }

  std::map<std::string, Tensor> all;
  std::string fingerprint = "0123456789abcdef";
  mutable int64_t size = 0;  // of the last file(), in bytes

 private:
  static std::string num(int64_t n) { return std::to_string(n); }

  static std::string list(const std::string& names) {
    std::string text;
    for (const std::string& name : words(names))
      text += (text.empty() ? "\"" : ",\"") + name + "\"";
    return "[" + text + "]";
  }

  int64_t input_of(int64_t l) const { return l > 0 ? s_.H : s_.input == "one_hot" ? s_.V : s_.I; }

  std::string layer(int64_t l) const {
    const Cell& c = s_.cell;
    const bool nru = c.program.empty();
    std::string states;
    for (const std::string& name : words(c.states)) {
      states += (states.empty() ? "" : ",") + std::string("{\"name\":\"") + name +
                "\",\"width\":" + num(name == "m" ? s_.memory : s_.H) + "}";
    }
    std::string options = "{}", constants = "{}";
    if (nru) {
      options = "{\"memory_size\":" + num(s_.memory) + ",\"heads\":" + num(s_.heads) +
                ",\"layer_norm\":" + (s_.layer_norm ? "true" : "false") + "}";
    }
    if (!c.constants.empty()) constants = "{\"" + c.constants + "\":0.001}";
    return "{\"cell\":\"" + c.name + "\",\"input_size\":" + num(input_of(l)) +
           ",\"hidden_size\":" + num(s_.H) + ",\"gates\":" + list(c.gates) + ",\"states\":[" +
           states + "],\"vectors\":" + list(c.vectors) + ",\"constants\":" + constants +
           ",\"takes_dt\":" + (c.takes_dt ? "true" : "false") +
           ",\"shortest_dt\":" + (c.constants.empty() ? "0.0" : "0.001") +
           ",\"options\":" + options + ",\"program\":" + (nru ? "null" : c.program) +
           (nru ? "" : ",\"program_hash\":\"" + program_hash(c) + "\"") + "}";
  }

  void vector(const std::string& name, int64_t n, float low, float high) {
    Tensor t{"F32", {n}, std::string(size_t(n) * 4, '\0')};
    for (int64_t i = 0; i < n; ++i) {
      const float x = random_.between(low, high);
      std::memcpy(&t.data[size_t(i) * 4], &x, 4);
    }
    all[name] = t;
  }

  void matrix(const std::string& name, int64_t rows, int64_t columns) {
    const size_t bytes = s_.dtype == "F32" ? 4 : s_.dtype == "BF16" ? 2 : 1;
    Tensor t{s_.dtype, {rows, columns}, std::string(size_t(rows * columns) * bytes, '\0')};
    for (int64_t i = 0; i < rows * columns; ++i) {
      const float x = random_.between(-s_.scale, s_.scale);
      uint32_t u;
      std::memcpy(&u, &x, 4);
      if (bytes == 1) {
        t.data[size_t(i)] = char(int8_t(x / s_.scale * 127));
      } else if (bytes == 2) {
        const auto top = uint16_t(u >> 16);
        std::memcpy(&t.data[size_t(i) * 2], &top, 2);
      } else {
        std::memcpy(&t.data[size_t(i) * 4], &x, 4);
      }
    }
    all[name] = t;
    if (bytes == 1) vector(name + ".scale", rows, s_.scale / 200, s_.scale / 100);
  }

  void tensors() {
    if (!s_.tokenizer.empty())
      all["text.dict"] = {"U8", {int64_t(s_.dictionary.size())}, s_.dictionary};
    if (s_.input == "tokens") matrix("embedding", s_.V, s_.I);
    for (int64_t l = 0; l < s_.layers; ++l) {
      const std::string name = "layers." + num(l) + ".";
      const int64_t rows = int64_t(words(s_.cell.gates).size()) * s_.H;
      matrix(name + "weight_x", rows, input_of(l));
      matrix(name + "weight_h", rows, s_.H);
      vector(name + "bias", rows, -0.5f, 0.5f);
      for (const std::string& v : words(s_.cell.vectors)) {
        vector(name + "vectors." + v, s_.H, 0.1f, 0.9f);
      }
      if (!s_.cell.program.empty()) continue;
      int64_t side = 1;
      while (side * side < s_.memory * s_.heads) ++side;
      matrix(name + "weight_m", s_.H, s_.memory);
      for (const char* map : {"alpha", "beta", "write", "erase"}) {
        const int64_t outputs = map[0] == 'a' || map[0] == 'b' ? s_.heads : 2 * side;
        matrix(name + "weight_" + map, outputs, s_.H + s_.memory);
        vector(name + "bias_" + map, outputs, -0.5f, 0.5f);
      }
      if (s_.layer_norm) {
        vector(name + "norm_scale", s_.H, 0.5f, 1.5f);
        vector(name + "norm_shift", s_.H, -0.5f, 0.5f);
      }
    }
    const int64_t out = s_.C ? s_.C : s_.V;
    if (!s_.tied) matrix("output.weight", out, s_.H);
    vector("output.bias", out, -0.5f, 0.5f);
  }

  Spec s_;
  Random random_;
};

// The text that is hashed for a program in this file; see "program_hash" in FORMAT.md.
inline std::string program_text(const Cell& cell) {
  std::string text = "gates " + cell.gates + "\nstates " + cell.states + "\nvectors" +
                     (cell.vectors.empty() ? "" : " ") + cell.vectors + "\nconstants" +
                     (cell.constants.empty() ? "" : " ") + cell.constants + "\ndt " +
                     (cell.takes_dt ? "1" : "0") + "\n";
  const size_t outputs = cell.program.find("\"outputs\":{");
  const auto literal = [](const std::string& number) {
    const double value = std::stod(number);
    uint64_t u;
    std::memcpy(&u, &value, 8);
    std::string hex = "=";
    for (int shift = 60; shift >= 0; shift -= 4) hex += "0123456789abcdef"[u >> shift & 15];
    return hex;
  };
  // Nodes: strip the punctuation; a literal is {"value":x}.
  std::string word;
  for (size_t i = std::strlen("{\"nodes\":["); i < outputs; ++i) {
    const char c = cell.program[i];
    if (c == '{') {
      const size_t end = cell.program.find('}', i);
      word += literal(cell.program.substr(i + 9, end - i - 9));
      i = end;
    } else if (c == ',') {
      if (!word.empty()) word += ' ';
    } else if (c == ']') {
      if (word.empty()) break;
      text += word + "\n";
      word.clear();
    } else if (c != '[' && c != '"') {
      word += c;
    }
  }
  for (size_t i = outputs + std::strlen("\"outputs\":{"); i < cell.program.size(); ++i) {
    const char c = cell.program[i];
    if (c == ':') {
      word += ' ';
    } else if (c == ',' || c == '}') {
      text += word + "\n";
      word.clear();
      if (c == '}') break;
    } else if (c != '"') {
      word += c;
    }
  }
  return text;
}

inline std::string program_hash(const Cell& cell) {
  uint64_t value = 0xcbf29ce484222325u;
  for (char c : program_text(cell)) value = (value ^ uint8_t(c)) * 0x100000001b3u;
  std::string hex;
  for (int shift = 60; shift >= 0; shift -= 4) hex += "0123456789abcdef"[value >> shift & 15];
  return hex;
}

}  // namespace sample
