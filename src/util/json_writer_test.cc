// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "util/json.h"

namespace vramscope::util {
namespace {

TEST(JsonWriter, WritesNestedValuesOnOneLine) {
  std::string out;
  JsonWriter json(&out);
  json.BeginObject();
  json.Field("a", uint64_t{1});
  json.Key("b");
  json.BeginArray();
  json.Int(-2);
  json.Null();
  json.Bool(true);
  json.BeginObject();
  json.EndObject();
  json.EndArray();
  json.Field("c", "text");
  json.Field("d", 0.1);
  json.EndObject();
  json.Finish();
  EXPECT_EQ(out, R"({"a":1,"b":[-2,null,true,{}],"c":"text","d":0.1})");
}

TEST(JsonWriter, IndentsWhereAsked) {
  std::string out;
  JsonWriter json(&out, 2);
  json.BeginObject();
  json.Key("a");
  json.BeginArray();
  json.Int(1);
  json.Int(2);
  json.EndArray();
  json.EndObject();
  json.Finish();
  EXPECT_EQ(out, "{\n  \"a\": [\n    1,\n    2\n  ]\n}\n");
}

TEST(JsonWriter, KeepsIntegersExact) {
  std::string out;
  JsonWriter json(&out);
  json.BeginArray();
  json.Uint(std::numeric_limits<uint64_t>::max());
  json.Int(std::numeric_limits<int64_t>::min());
  json.Uint(9007199254740993);  // not a double
  json.EndArray();
  EXPECT_EQ(out, "[18446744073709551615,-9223372036854775808,9007199254740993]");
}

TEST(JsonWriter, EscapesAndRepairsStrings) {
  EXPECT_EQ(JsonQuoted("a\"b\\c\n\r\t\x01\x7f/"), "\"a\\\"b\\\\c\\n\\r\\t\\u0001\\u007f/\"");
  EXPECT_EQ(JsonQuoted("gr\xc3\xbc\xc3\x9f \xf0\x9f\x98\x80"),
            "\"gr\xc3\xbc\xc3\x9f \xf0\x9f\x98\x80\"");
  EXPECT_EQ(JsonQuoted("\xff|\xc3|\xed\xa0\x80|\xc0\xaf"),
            "\"\xef\xbf\xbd|\xef\xbf\xbd|\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd|"
            "\xef\xbf\xbd\xef\xbf\xbd\"");
  EXPECT_EQ(JsonQuoted(std::string_view("\0x", 2)), "\"\\u0000x\"");
}

TEST(JsonWriter, WritesNumbersThatJsonCannotSayAsNull) {
  std::string out;
  JsonWriter json(&out);
  json.BeginArray();
  json.Double(std::nan(""));
  json.Double(-std::numeric_limits<double>::infinity());
  json.EndArray();
  EXPECT_EQ(out, "[null,null]");
}

TEST(JsonWriter, HandsOverPieces) {
  std::string all;
  size_t pieces = 0;
  {
    JsonWriter json([&](std::string_view piece) {
      all.append(piece);
      ++pieces;
    });
    json.BeginArray();
    for (int i = 0; i < 50000; ++i)
      json.Int(i);
    json.EndArray();
    json.Finish();
  }
  EXPECT_GT(pieces, 3u);
  EXPECT_EQ(all.substr(0, 5), "[0,1,");
  EXPECT_EQ(all.substr(all.size() - 7), ",49999]");
}

}  // namespace
}  // namespace vramscope::util
