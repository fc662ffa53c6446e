// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdint>
#include <string>

#include "output/page/page_data.h"

namespace vramscope::output {
namespace {

std::string Packed(const std::string& json, size_t most_plain_bytes, size_t piece) {
  std::string text;
  PageScriptData data([&](std::string_view part) { text += part; }, most_plain_bytes);
  for (size_t at = 0; at < json.size(); at += piece)
    data.Write(std::string_view(json).substr(at, piece));
  data.Finish();
  return text;
}

std::string FromBase64(std::string_view text) {
  std::string bytes;
  uint32_t bits = 0;
  int held = 0;
  for (const char c : text) {
    const size_t digit =
        std::string_view("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
            .find(c);
    if (digit == std::string_view::npos)
      break;
    bits = (bits << 6) | static_cast<uint32_t>(digit);
    held += 6;
    if (held >= 8) {
      held -= 8;
      bytes += static_cast<char>((bits >> held) & 0xff);
    }
  }
  return bytes;
}

std::string Inflated(std::string bytes, size_t size) {
  std::string out(size + 1, '\0');
  z_stream stream{};
  EXPECT_EQ(inflateInit2(&stream, -15), Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(inflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  inflateEnd(&stream);
  return out;
}

TEST(PageScriptData, LittleIsWrittenAsItIsAndEndsNoScript) {
  EXPECT_EQ(Packed(R"({"a":"</script>"})", 100, 3), R"({"a":"\u003c/script>"})");
  EXPECT_EQ(Packed("", 100, 1), "");
}

TEST(PageScriptData, MuchIsPackedAndComesBack) {
  for (const size_t size : {101u, 102u, 103u, 5000u, 300'000u}) {
    std::string json;
    for (uint32_t i = 1; json.size() < size; i = i * 1664525 + 1013904223)
      json += std::to_string(i % 97) + (i % 7 == 0 ? "</script>" : ",");
    json.resize(size);
    for (const size_t piece : {size_t{1000}, size_t{64}, size}) {
      const std::string text = Packed(json, 100, piece);
      ASSERT_TRUE(text.starts_with(kPackedMark));
      EXPECT_EQ(text.find('<'), std::string::npos);
      EXPECT_EQ((text.size() - kPackedMark.size()) % 4, 0u);
      EXPECT_EQ(Inflated(FromBase64(std::string_view(text).substr(kPackedMark.size())), size),
                json);
    }
  }
}

}  // namespace
}  // namespace vramscope::output
