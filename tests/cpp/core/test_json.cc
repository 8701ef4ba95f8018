// The JSON reader: what it accepts and refuses, and that its messages give the position.
#include <cmath>
#include <cstdio>
#include <string>

#include "core/error.h"
#include "core/files/json.h"
#include "support/check.h"

using tsm::JsonField;
using tsm::JsonLimits;
using tsm::JsonValue;
using tsm::parse_json;

namespace {

std::string error_of(const std::string& text, const JsonLimits& limits = {}) {
  try {
    parse_json(text, "file", limits);
  } catch (const tsm::Error& error) {
    CHECK(error.kind == tsm::ErrorKind::kBadFile);
    return error.what();
  }
  return "";
}

bool refused(const std::string& text) { return !error_of(text).empty(); }

template <class Function>
std::string message(const Function& f) {
  try {
    f();
  } catch (const tsm::Error& error) {
    return error.what();
  }
  return "(nothing was thrown)";
}

void check_message(const std::string& found, const std::string& expected) {
  if (found == expected) return;
  std::fprintf(stderr, "found:    %s\nexpected: %s\n", found.c_str(), expected.c_str());
  CHECK(false);
}

TEST_CASE("values") {
  const JsonValue v = parse_json(
      " { \"a\" : [ 1 , -2.5e3 , true , false , null , \"x\\n\\u00e9\\ud83d\\ude00\" ] , \"b\":{} "
      "} ",
      "file");
  const JsonField top(v, "file");
  CHECK(top["a"].size(0, 10) == 6);
  CHECK(top["a"].at(0).integer(0, 5) == 1);
  CHECK(top["a"].at(1).number() == -2500);
  CHECK((top["a"].at(2).boolean() && !top["a"].at(3).boolean()));
  CHECK(top["a"].at(4).is_null());
  CHECK(top["a"].at(5).string() == "x\n\xc3\xa9\xf0\x9f\x98\x80");
  CHECK(top["b"].members(0).empty());
  CHECK((top.has("b") && !top.has("c")));
  CHECK(parse_json("9223372036854775807", "file").integer == 9223372036854775807);
  CHECK(parse_json("-9223372036854775808", "file").integer == -9223372036854775807 - 1);
  CHECK(parse_json("0.1", "file").number == 0.1);
  CHECK(parse_json("5e-324", "file").number == 5e-324);
  CHECK(std::signbit(parse_json("-0.0", "file").number));
  const JsonValue order = parse_json("{\"z\":1,\"a\":2}", "file");
  CHECK((order.members[0].first == "z" && order.find("a")->integer == 2));
}

TEST_CASE("refused") {
  for (const char* text : {"",
                           " ",
                           "{",
                           "}",
                           "[1,]",
                           "[1 2]",
                           "{\"a\"}",
                           "{\"a\":}",
                           "{\"a\":1,}",
                           "{a:1}",
                           "nul",
                           "tru",
                           "+1",
                           "01",
                           "1.",
                           ".5",
                           "1e",
                           "1e+",
                           "--1",
                           "0x10",
                           "NaN",
                           "Infinity",
                           "1 1",
                           "[1]]",
                           "\"",
                           "\"\\x\"",
                           "\"\\u12\"",
                           "\"\\ud800\"",
                           "\"\\ud800x\"",
                           "\"\\udc00\"",
                           "\"\\ud800\\u0041\"",
                           "'a'",
                           "/* */ 1",
                           "9223372036854775808",
                           "-9223372036854775809",
                           "1e400",
                           "{\"a\":1,\"a\":2}",
                           "{\"a\":1,\"\\u0061\":2}",
                           "\"a\nb\"",
                           "\"\t\"",
                           "\"\x01\""}) {
    if (!refused(text)) std::fprintf(stderr, "accepted: %s\n", text);
    CHECK(refused(text));
  }
  // Invalid UTF-8: a stray byte, a truncated sequence, an overlong form, a surrogate, above
  // U+10FFFF.
  for (const char* text : {"\"\x80\"", "\"\xc3\"", "\"\xc0\xaf\"", "\"\xe0\x80\xaf\"",
                           "\"\xed\xa0\x80\"", "\"\xf4\x90\x80\x80\"", "\"\xff\""}) {
    CHECK(refused(text));
  }
  CHECK(refused(std::string("1\0", 2)));
  CHECK(!refused("\"\xed\x9f\xbf\xf4\x8f\xbf\xbf\""));
}

TEST_CASE("limits") {
  JsonLimits limits;
  limits.depth = 5;
  CHECK(error_of("[[[[[1]]]]]", limits).empty());
  CHECK(error_of("[[[[[[1]]]]]]", limits).find("deeper") != std::string::npos);
  limits.values = 4;
  CHECK(error_of("[1,2,3]", limits).empty());
  CHECK(error_of("[1,2,3,4]", limits).find("more JSON values") != std::string::npos);
  limits.bytes = 3;
  CHECK(error_of("1234", limits).find("4 bytes") != std::string::npos);
  // The deepest nesting allowed by default does not exhaust the stack.
  CHECK(refused(std::string(1000000, '[')));
}

TEST_CASE("messages") {
  check_message(error_of("[1,x]"), "file: JSON, byte 3: found \"x]\", expected a value");
  check_message(error_of("{\"k\":1,\"k\":2}"), "file: JSON has the key \"k\" twice in one object");
  const JsonValue v =
      parse_json("{\"layers\":[{\"hidden_size\":-3,\"cell\":\"a\\u0000b\",\"eps\":[]}]}", "m.tsm");
  const JsonField layer = JsonField(v, "m.tsm")["layers"].at(0);
  check_message(message([&] { layer["hidden_size"].integer(1, 9); }),
                "m.tsm: layers[0].hidden_size is -3; accepted: an integer from 1 to 9");
  check_message(message([&] { layer["width"]; }), "m.tsm: layers[0].width is missing");
  check_message(message([&] { layer["cell"].string({"x", "y"}); }),
                "m.tsm: layers[0].cell is \"a\\x00b\"; accepted: x, y");
  check_message(message([&] { layer["eps"].number(); }),
                "m.tsm: layers[0].eps is a list of 0; accepted: a number");
  check_message(message([&] { layer.only({"cell", "eps"}); }),
                "m.tsm: layers[0] has the key \"hidden_size\"; accepted: cell, eps");
  check_message(message([&] { layer["eps"].size(1, 2); }),
                "m.tsm: layers[0].eps is a list of 0; accepted: a list of 1 to 2 values");
  check_message(message([&] { layer["eps"].at(0); }),
                "m.tsm: layers[0].eps is a list of 0; accepted: at least 1 values");
}

}  // namespace
